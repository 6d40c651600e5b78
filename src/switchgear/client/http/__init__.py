"""Clients and workers over HTTP: packets of the Gearman cores become requests to the HTTP interface of a server."""
