"""Switchgear within other people's frameworks."""
