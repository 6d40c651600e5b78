"""The worker of an app: `switchgear worker myapp:app`, and the same inside a process of the user's.

`conversation` is a worker's side of the wire, without I/O; `link` one connection; `post` some slots and the links that
fill them; `threads`, `coroutines` and `processes` run jobs, the last with `child` at the other end; `worker` is all of
it together.
"""
