"""restart_web_nodes: for administrators."""

from __future__ import annotations

import json
import os
import signal
import time
from http.client import HTTPException

from examples.livejournal.site import WebNode
from examples.livejournal.tasks.base import Task, fetch
from examples.livejournal.world import World

__all__ = ["restart_web_nodes"]

RESTART_SECONDS = 30.0


def restart_web_nodes(world: World, task: Task) -> bytes:
    """End one after the other, and see that it comes back before the next.  Each is in the job log too."""
    with world.site() as site:
        nodes = site.web_nodes()
    with world.job_log() as log:
        for count, node in enumerate(nodes, 1):
            with log.task("web-node-restart", key=node.name):
                _restart(node)
            task.progress(count, len(nodes))
    return f"{', '.join(node.name for node in nodes)} are back".encode()


def _restart(node: WebNode) -> None:
    """Whoever watches over the nodes starts another process; until that accepts, a question to it waits."""
    os.kill(node.pid, signal.SIGTERM)
    deadline = time.monotonic() + RESTART_SECONDS
    while time.monotonic() < deadline:
        try:
            if json.loads(fetch(node.url))["pid"] != node.pid:
                return
        except (OSError, HTTPException, ValueError):
            pass  # the old process took the question to its grave
    raise TimeoutError(f"{node.name} did not come back within {RESTART_SECONDS:g} s")
