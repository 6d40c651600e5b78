"""The HTTP interface: docs/protocols/http.md."""
