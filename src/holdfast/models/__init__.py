"""Model endpoints, one file a wire; and a demo that needs none."""
