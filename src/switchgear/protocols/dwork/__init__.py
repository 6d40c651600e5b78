"""The dwork protocol: docs/protocols/dwork.md."""
