"""The worker of an app: `switchgear worker myapp:app`, and the same inside a process of the user.

`worker.py` has the whole; a `slot_pool` has an executor and a connection to each server (`switchgear.client.gearman`);
`thread_executor`, `async_executor` and `process_executor` run jobs, the last in processes that run `child`.
"""
