"""ZMTP, the wire protocol of ZeroMQ, below WMP, PING/PONG and dwork."""
