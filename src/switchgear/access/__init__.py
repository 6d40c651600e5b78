"""Access control: identities of peers, their roles and functions, and the access file that lists them."""
