"""Switchgear judged by programs that do not know it."""
