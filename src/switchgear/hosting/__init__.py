"""Servers that run inside one's own program: a WMP manager, a PING/PONG broker, a dwork hub and a GearMonkey server.

Each is the whole server, with one listener, in a thread of the program.
"""
