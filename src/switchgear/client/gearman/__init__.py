"""Clients and workers for Gearman servers: this package's servers with all extensions, and others without.

`client_protocol.py` and `worker_protocol.py` are the two cores without I/O: they read and write every packet.  Blocking
and asyncio clients, the asyncio worker, and the app and its workers (`switchgear.app`) are built on them.
"""
