"""`switchgear top`: the state of a server on a terminal, updated live."""
