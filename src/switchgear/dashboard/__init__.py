"""The dashboard: pages that a browser gets from an HTTP listener, and that use nothing but the HTTP interface."""
