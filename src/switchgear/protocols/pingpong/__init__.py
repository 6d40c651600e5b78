"""The PING/PONG protocol: docs/protocols/pingpong.md."""
