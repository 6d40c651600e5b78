"""Protocols: sessions without I/O that translate between messages of peers and the engine."""
