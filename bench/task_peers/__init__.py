"""One task that does nothing, in each library, and a client that has it done; see `bench.tasks`.

The modules `on_...` are imported by the library's own worker and by the client.  Those of other libraries live in an
environment of their own (scripts/install-bench-peers), where this package is not installed, so that they, `client` and
`marks` may not import it.
"""
