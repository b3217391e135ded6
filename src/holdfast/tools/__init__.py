"""Things a model may use."""
