"""A busy server for the browser to look at: workers of several protocols, failures, queues, schedules, a graph.

    python -m tests.dashboard.scene HTTP_URL GEARMAN_URL WMP_URL

It prints "ready" when there is something of everything, and goes on until it is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from switchgear.client import Worker, WorkerJob
from switchgear.client.wmp import WmpJob, WmpWorker
from tests.support.http_client import HttpClient

LONG_NAME = "warehouse.reconcile." + "a-name-that-nobody-should-have-chosen." * 5
LONG_NAME = LONG_NAME[:200]
Handler = Callable[[WorkerJob], Awaitable[bytes]]

ERRORS = (
    "PIL.UnidentifiedImageError: cannot identify image file '/uploads/{number}.jpg'",
    "TimeoutError: the image store did not answer within {number} ms",
)


def worker_for(seconds: float, failing: float = 0.0, steps: int = 0) -> Handler:
    """A handler that takes about so long, fails now and then, and may tell of its progress."""

    async def handle(job: WorkerJob) -> bytes:
        wanted = random.uniform(0.5, 1.7) * seconds
        for step in range(steps):
            job.progress(step, steps)
            await asyncio.sleep(wanted / steps)
        if not steps:
            await asyncio.sleep(wanted)
        if random.random() < failing:
            text = random.choice(ERRORS).format(number=random.randrange(1, 4000))
            raise RuntimeError(text)
        return json.dumps({"ok": True, "took_ms": round(wanted * 1000)}).encode()

    return handle


class Scene:
    """The jobs, and what is to be said about them."""

    def __init__(self, http_url: str) -> None:
        self.client = HttpClient(http_url)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        answer = self.client.call(method, f"/v1/{path}", data, {"Content-Type": "application/json"} if data else {})
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None

    def submit(self, function: str, payload: Any = "", **options: Any) -> str:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        handle: str = self.call("POST", "jobs", {"function": function, "payload": text, **options})["handle"]
        return handle

    def batch(self, jobs: list[dict[str, Any]]) -> None:
        body = b"\n".join(json.dumps(job).encode() for job in jobs)
        answer = self.client.call("POST", "/v1/jobs/batch", body, {"Content-Type": "application/x-ndjson"})
        assert answer.status == 200, answer.body

    def set_up(self) -> None:
        """Everything that does not move."""
        self.call("PATCH", "functions/video.encode", {"concurrency": 2, "key_concurrency": 1, "fair": True})
        self.call("PATCH", "functions/mail.send", {"rate": [50, 1.0]})
        for number in range(18):
            tenant = ("acme", "globex", "initech")[number % 3]
            self.submit("video.encode", {"clip": f"{tenant}/{number}.mov", "height": 1080}, key=tenant)
        self.batch([{"function": "report.build", "payload": json.dumps({"month": n})} for n in range(240)])
        self.batch([{"function": "billing.sync", "payload": str(n)} for n in range(12)])
        self.call("PATCH", "functions/billing.sync", {"paused": True})
        self.submit(LONG_NAME, "x")
        self.submit("archive.pack", {"year": 2019}, run_at=time.time() + 6 * 3600, unique="archive-2019")
        self.graph()
        self.schedules()
        self.dead_letters()

    def graph(self) -> None:
        extracted = [self.submit("etl.extract", f"table {n}", name=f"extract-{n}") for n in range(6)]
        transformed = [
            self.submit("etl.transform", f"part {n}", name=f"transform-{n}", after=extracted[n : n + 2])
            for n in range(5)
        ]
        loaded = self.submit("etl.load", "warehouse", name="load", after=transformed)
        self.submit("etl.publish", "dashboard", name="publish", after=[loaded])

    def schedules(self) -> None:
        nightly = {"function": "report.build", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
        self.call("PUT", "schedules/nightly-report", nightly)
        self.call("PUT", "schedules/heartbeat", {"function": "mail.send", "every_seconds": 30, "payload": "ping"})
        self.call("PUT", "schedules/old-cleanup", {"function": "billing.sync", "cron": "*/5 * * * *", "paused": True})
        self.call("POST", "schedules/heartbeat/run")

    def dead_letters(self) -> None:
        """Jobs whose only attempt was lost: their worker took them and was not heard of again."""
        for number in range(3):
            self.submit("legacy.import", {"batch": number}, attempts_limit=1, name=f"batch-{number}")
            answer = self.client.call("POST", "/v1/functions/legacy.import/take?lease=0.1&wait=10")
            assert answer.status == 200, answer.body

    def more(self, tick: int) -> None:
        """What comes in a tenth of a second."""
        jobs = [job_of("mail.send", {"to": f"user{random.randrange(5000)}@example.org"}) for _ in range(tick % 3 + 2)]
        resize = job_of("image.resize", {"id": tick, "sizes": [64, 256, 1024]})
        resize["priority"] = "high" if tick % 9 == 0 else "normal"
        jobs += [resize] * (1 + tick % 2)
        if tick % 3 == 0:
            jobs.append(job_of("search.index", {"document": tick}))
        if tick % 5 == 0:
            jobs.append(job_of("invoice.render", {"invoice": tick, "lines": [{"sku": "A-17", "count": 2}]}))
        self.batch(jobs)


def job_of(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"function": function, "payload": json.dumps(arguments)}


def work_over_http(url: str, stopping: threading.Event) -> None:
    """One worker that takes invoices with plain requests."""
    client = HttpClient(url)
    with contextlib.suppress(OSError):
        while not stopping.is_set():
            taken = client.call("POST", "/v1/functions/invoice.render/take?wait=1&lease=30")
            if taken.status != 200:
                continue
            stopping.wait(random.uniform(0.05, 0.3))
            report = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}
            client.call("PUT", f"/v1/jobs/{taken.headers['Switchgear-Job']}/result", b"%PDF-1.7 \x00\xff\xfe", report)


async def play(http_url: str, gearman_url: str, wmp_url: str) -> None:
    scene = Scene(http_url)
    workers = [
        *(Worker(gearman_url, {"mail.send": worker_for(0.07)}, slots=2, name=f"mailer-{n}") for n in (1, 2, 3)),
        *(Worker(gearman_url, {"image.resize": worker_for(0.25, 0.03)}, slots=3, name=f"resizer-{n}") for n in (1, 2)),
        Worker(gearman_url, {"video.encode": worker_for(40, steps=20)}, slots=2, name="encoder-gpu0", tags=["gpu"]),
        Worker(gearman_url, {"etl.extract": worker_for(45, steps=10)}, slots=2, name="etl-1"),
    ]
    indexer = WmpWorker(wmp_url, {"search.index": index_document}, 2, identity="indexer")
    stopping = threading.Event()
    threads = [
        threading.Thread(target=work_over_http, args=(http_url, stopping), daemon=True),
        threading.Thread(target=indexer.run, kwargs={"handle_signals": False}, daemon=True),
    ]
    for thread in threads:
        thread.start()
    running = [asyncio.create_task(worker.run()) for worker in workers]
    scene.set_up()
    tick = 0
    while True:
        tick += 1
        scene.more(tick)
        if tick == 30:
            print("ready", flush=True)
        await asyncio.sleep(0.1)
        for task in running:
            if task.done():
                task.result()


def index_document(job: WmpJob) -> bytes:
    threading.Event().wait(random.uniform(0.02, 0.2))
    return b"indexed"


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:4]))
