"""A site on Flask that leaves work to others and shows how far it is."""

from __future__ import annotations

from typing import Any

from flask import Flask, abort, jsonify, request

from switchgear import App, current_job
from switchgear.errors import JobUnknown

jobs = App(run_here=False)  # the web server only submits; `switchgear worker site_app:jobs` does the work
app = Flask(__name__)


@jobs.task(unique=True, timeout=30, retries=2)
def preview(text: str, length: int = 8) -> str:
    """The beginning of a text."""
    current_job().progress(1, 1, "shortening")
    return text if len(text) <= length else f"{text[: length - 1]}…"


@app.post("/previews")
def order_preview() -> Any:
    """Have one made."""
    return jsonify(job=preview.submit(request.get_data(as_text=True)).handle)


@app.get("/previews/<handle>")
def show_preview(handle: str) -> Any:
    """How far it is, and the preview itself if it is done."""
    job = preview.job(handle)
    try:
        status = job.status()
    except JobUnknown:
        abort(404)
    return jsonify(state=status.state, message=status.message, preview=job.result() if status.state == "done" else None)
