"""The scheduling engine, which decides about jobs. It is pure: no I/O, no clock, no randomness."""
