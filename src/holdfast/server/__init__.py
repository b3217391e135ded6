"""HTTP: the journal for whoever asks over the network."""
