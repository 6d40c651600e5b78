"""`switchgear top`: a server on a terminal, live."""
