"""The table of operator verbs: their arguments, answers and roles.  The server, the command line and the Python library
are made from the table, or checked against it."""
