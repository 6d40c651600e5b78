"""The Gearman protocol: docs/protocols/gearman.md."""
