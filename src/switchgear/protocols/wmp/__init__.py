"""WMP, the ZeroMQ Worker-Manager Protocol: docs/protocols/wmp.md."""
