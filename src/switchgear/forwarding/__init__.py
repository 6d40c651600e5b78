"""Forwarding: the server as a worker of other servers.

It takes their jobs when it has workers for them, and reports back what becomes of each.
"""
