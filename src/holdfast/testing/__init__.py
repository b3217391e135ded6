"""Tools for testing agents and the parts of holdfast: public, and used by its own tests."""
