"""The conversations themselves, by subject."""
