"""WMP devices: routes without sockets."""
