"""Tests of the hub and what surrounds it, in turns of an event loop whose time stands still."""
