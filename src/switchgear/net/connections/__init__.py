"""Listeners and their connections: TCP, TLS and ZMTP, detection of protocols, limits and fair shares."""
