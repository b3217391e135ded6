"""Durable agent runs that can always be stopped."""
