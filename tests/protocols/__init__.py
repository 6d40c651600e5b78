"""Tests of the protocols, one folder each."""
