"""Measuring: `switchgear bench`, and what the comparison with other servers in the repository's `bench` builds on."""
