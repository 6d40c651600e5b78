"""Benchmarks: `switchgear bench`, and the parts that the comparison in the repository's `bench` uses."""
