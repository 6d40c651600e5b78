"""Switchgear beside others on one machine: `python -m bench`.  What it measures, and how, is in README.md."""
