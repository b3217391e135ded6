"""Supervised calls: a model is heard out, hedged, retried and given up on, journal or none."""
