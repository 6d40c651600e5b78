"""`replay`: runs a job of a server in this process, by its handle, for debugging."""

from __future__ import annotations

import asyncio
from typing import Any

from switchgear.app.app import App
from switchgear.app.current_job import CurrentJob, running
from switchgear.errors import JobUnknown
from switchgear.json_bytes import bytes_of

__all__ = ["replay"]


def replay(app: App, handle: str, *, function: Any = None) -> Any:
    """Run the job with this handle in this process, as a worker would, and return its result or raise its exception.

    The job itself does not change: its payload is read from the server of the app, and its predecessors' results with
    it.  The task is run with its middleware and resources, so use it where its side effects do no harm; `function`
    replaces the task's own.  Raises JobUnknown if the server does not have the job any more, and LookupError if the
    app has no such task.
    """
    found = app.control("job", handle=handle)
    task = app.tasks.get(str(found["function"]))
    if task is None:
        raise LookupError(f"{handle} is a job of {found['function']}, and the app has no such task")
    payload = bytes_of(found["payload"], "payload")
    results: dict[str, bytes] = {}
    for reference in task.arguments.references(payload):
        other = app.control("job", handle=reference)
        if other["state"] != "done":
            raise JobUnknown("JOB_NOT_FOUND", f"{handle} needs the result of {reference}, which is {other['state']}")
        results[reference] = bytes_of(other["result"], "result")
    args, kwargs = task.arguments.decode(payload, results)
    job = CurrentJob(found["handle"], task.name, attempt=max(1, found["attempts"]))
    with running(job):
        if function is not None:
            return function(*args, **kwargs)
        if task.is_async:
            return asyncio.run(_run(app, task, job, args, kwargs))
        return app.hooks.call(task, job, args, kwargs)


async def _run(app: App, task: Any, job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return await app.hooks.call_async(task, job, args, kwargs)
    finally:
        await app.hooks.close_loop()
