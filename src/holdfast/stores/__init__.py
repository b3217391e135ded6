"""Where journals, leases and blobs are kept."""
