"""A site on FastAPI: submit with asyncio, and pass progress on to the browser as it comes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from switchgear import App, current_job
from switchgear.contrib.asgi import dashboard
from switchgear.errors import JobFailed

jobs = App(run_here=False)  # the web server only submits; `switchgear worker site_app:jobs` does the work
app = FastAPI()
# Visitors of the site may look at its jobs; `authorize` would tell who may do more, or not even that.
app.mount("/dashboard", dashboard(os.environ.get("SWITCHGEAR_HTTP", "http://127.0.0.1:4740")))


@jobs.task(timeout=300)
async def report(rows: int) -> dict[str, int]:
    """Something that takes a while."""
    for row in range(rows):
        current_job().progress(row + 1, rows, f"row {row + 1}")
    return {"rows": rows, "sum": sum(range(rows))}


@app.post("/reports")
async def order_report(rows: int) -> dict[str, str]:
    """Have one made."""
    job = await report.submit_async(rows)
    return {"job": job.handle}


@app.get("/reports/{handle}/events")
async def follow_report(handle: str) -> StreamingResponse:
    """Progress, and in the end the result, as server-sent events."""
    return StreamingResponse(_events(handle), media_type="text/event-stream")


async def _events(handle: str) -> AsyncIterator[str]:
    job = report.job(handle)
    async for update in job.updates():
        yield _event("progress", {"done": update.done, "total": update.total, "message": update.message})
    try:
        yield _event("result", await job)
    except JobFailed as failure:
        yield _event("failure", str(failure))


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


@app.delete("/reports/{handle}")
async def cancel_report(handle: str) -> dict[str, bool]:
    """Nobody wants it any more."""
    return {"cancelled": await report.job(handle).cancel_async()}
