"""Who may do what: identities of peers, their roles and functions, and the file that lists them."""
