"""Runs for clients of OpenAI: their requests read, and a journal told in their words."""
