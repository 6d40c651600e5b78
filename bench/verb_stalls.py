"""How long does each verb of operators keep the event loop from other work, with very many jobs?

    python -m bench.verb_stalls [--jobs 1000000] [--queues 1] [--keys 0] [--workers 0] [--store sqlite:]
                                [--store memory:] [--only graph,events]

Makes a hub in this process with so many jobs, half of them queued and half of them finished as far as the store keeps
them, uses each verb, and notes the longest that one callback of the event loop took.  That is how long every peer
waits.  `cpu` is the time that the event loop's thread has computed; `wall` includes what the machine did besides, and
waiting for the interpreter lock.  Other programs change `cpu` too, because they share the processor's caches, so a verb
that changes nothing is used three times, and the least of its longest stalls is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.model import CANCELLED, DONE, FAILED, NORMAL, Cause, Delivery, Function, Job
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.net.process.gc_tuning import freeze_existing_objects
from switchgear.protocols.http.feed_topics import FeedTopic, JobTopic, OverviewTopic, RowsTopic, StreamTopic
from switchgear.protocols.pending_read import Step
from switchgear.storage.open import open_store
from switchgear.telemetry import Telemetry
from switchgear.testing.recording_peer import RecordingPeer
from switchgear.verbs.live_answers import FUNCTION_COLUMNS, WORKER_COLUMNS
from switchgear.verbs.table import VERBS

BATCH = 1_000
ROUNDS = 3  # of verbs that change nothing
LEFT_OUT = {
    "audit": "needs a job log, which is read in a thread of its own",
    "runs": "needs a job log, which is read in a thread of its own",
    "nodes": "needs a cluster, whose nodes are few",
    "place": "needs servers that own functions together",
    "create_function": "only a command of gearmand's text protocol; it looks at one function",
    "drop_function": "only a command of gearmand's text protocol; it looks at one function",
    "queue_limits": "only a command of gearmand's text protocol; it looks at one function",
    "shutdown": "ends the server",
    "open_dashboard": "opens a port",
}


class Watch:
    """The longest callback since the last look."""

    def __init__(self) -> None:
        self.cpu_ms = self.wall_ms = 0.0
        self._run = asyncio.Handle._run

    def begin(self) -> None:
        watch, run = self, self._run

        def timed(handle: asyncio.Handle) -> None:
            wall, cpu = time.perf_counter(), time.thread_time()
            run(handle)
            watch.cpu_ms = max(watch.cpu_ms, (time.thread_time() - cpu) * 1000)
            watch.wall_ms = max(watch.wall_ms, (time.perf_counter() - wall) * 1000)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    def take(self) -> tuple[float, float]:
        longest = self.cpu_ms, self.wall_ms
        self.cpu_ms = self.wall_ms = 0.0
        return longest


class FilledHub:
    """A hub with many jobs, and its operator."""

    def __init__(self, hub: Hub, jobs: int, queues: int, keys: int, workers: int) -> None:
        self.hub = hub
        self.keys = keys
        self.workers = workers
        self.jobs = jobs
        self.operations = Operations(hub, "H:bench:")
        hub.operator = self.operations.in_steps
        hub.watcher = self.operations.live_rows.in_steps
        self.functions = [Function(b"f%d" % number) for number in range(100)]  # of jobs that have ended
        self.queues = queues

    async def fill(self) -> None:
        """Half of the jobs have ended, one in five of them without success; the others are queued."""
        engine, store = self.hub.engine, self.hub.store
        half = self.jobs // 2
        for first in range(1, half + 1, BATCH):
            self.hub.begin_turn()
            jobs = [self.ended_job(engine.reserve_id()) for _ in range(min(BATCH, half + 1 - first))]
            store.stage(jobs)
            await store.commit()
            await self.hub.flush()
        for first in range(half, self.jobs, BATCH):
            self.hub.begin_turn()
            for number in range(first, min(first + BATCH, self.jobs)):
                name = b"f%d" % (5 + number % self.queues)
                options = SubmitOptions(key=b"k%d" % (number % self.keys)) if self.keys else None
                engine.submit(name, b"u%d" % number, b"payload", NORMAL, Delivery.HANDLE, None, options)
            await self.hub.flush()
            self.hub.commits.start()
            await self.hub.flush()

    async def start_workers(self) -> None:
        """Half of the workers run a job of a function with keys, and the others sleep."""
        engine = self.hub.engine
        for first in range(0, self.workers, BATCH):
            self.hub.begin_turn()
            for number in range(first, min(first + BATCH, self.workers)):
                function = engine.function_named(b"f5" if number % 2 else b"f1")
                worker = engine.add_worker(RecordingPeer(), "gearman", b"w%d" % number)
                engine.can_do(worker, function)
                if engine.take(worker) is None:
                    engine.sleep(worker)
            await self.hub.flush()
            self.hub.commits.start()
            await self.hub.flush()

    def ended_job(self, job_id: int) -> Job:
        job = Job(job_id, self.functions[job_id % 100], b"u%d" % job_id, b"payload", NORMAL, Delivery.HANDLE, job_id)
        job.has_details = True
        job.finished_us = self.hub.clock.now_us()
        job.state = (DONE, DONE, DONE, DONE, (FAILED, CANCELLED)[job_id // 5 % 2])[job_id % 5]
        if job.state is FAILED:
            job.error = b"it did not work, attempt 3"
            job.moves = [Cause.TAKEN, job_id, Cause.EXHAUSTED, job_id]
        if job_id % 10 == 0:
            job.name = b"n%d" % job_id
        return job

    async def use(self, verb: str, **arguments: Any) -> Any:
        """Use a verb as a session does, in slices."""
        answers: list[Any] = []
        ended = asyncio.Event()

        def steps() -> Iterator[Step]:
            try:
                yield from self.operations.in_steps(verb, arguments, answers)
            except LookupError:
                answers.append(None)  # memory does not keep it for so long
            finally:
                ended.set()

        self.hub.begin_turn()
        self.hub.work_off(steps())
        await ended.wait()
        await asyncio.sleep(0)
        while len(self.hub.engine.sliced_work):  # noqa: ASYNC110  (it is the turns of the loop that are waited for)
            await asyncio.sleep(0)
        return answers[0] if answers else None

    async def watch(self, topic: FeedTopic) -> None:
        """Collect a topic of the live feed twice, and encode a snapshot of it."""
        ended = asyncio.Event()

        def steps() -> Iterator[Step]:
            try:
                yield from topic.collect(self.hub)
                yield from topic.collect(self.hub)
                yield from topic.encode()
            finally:
                ended.set()

        self.hub.begin_turn()
        self.hub.work_off(steps())
        await ended.wait()

    async def sample(self) -> None:
        """Take a sample for the series."""
        self.operations.series_recorder.look_after()
        while len(self.hub.long_operations):  # noqa: ASYNC110  (nobody tells when they are done)
            await asyncio.sleep(0)

    def topics(self) -> list[FeedTopic]:
        """What the live feed collects twice a second."""
        functions = RowsTopic("functions", FUNCTION_COLUMNS)
        workers = RowsTopic("workers", WORKER_COLUMNS)
        return [OverviewTopic(), functions, workers, StreamTopic(), JobTopic(self.jobs, b"H:bench:")]

    def uses(self) -> list[tuple[str, dict[str, Any]]]:
        """Each verb, with arguments that make it look at much."""
        some = [f"H:bench:{number}" for number in range(1, self.jobs, max(1, self.jobs // 10_000))][:10_000]
        last = f"H:bench:{self.jobs}"
        queued = [f"H:bench:{number}" for number in range(self.jobs // 2 + 1, self.jobs)][:10_000]
        return [
            ("server", {}),
            ("overview", {}),
            ("flows", {}),
            ("series", {"since": time.time() - 6 * 86_400}),
            ("stream", {}),
            ("at", {"t": time.time() - 1}),
            ("storage", {}),
            ("errors", {}),
            ("graph", {"function": "f5"}),
            ("graph", {"name": "nobody"}),
            ("graph", {"handle": last}),
            ("functions", {}),
            ("workers", {}),
            ("connections", {}),
            ("control_workers", {"action": "ping"}),
            ("explain_server", {}),
            ("jobs", {"limit": 1000}),
            ("jobs", {"states": ["done"], "limit": 1000}),
            ("jobs", {"states": ["failed"], "limit": 1000}),
            ("jobs", {"states": ["running"]}),
            ("jobs", {"unique": "nobody's"}),
            ("jobs", {"unique": "u7"}),
            ("jobs", {"name": "nobody"}),
            ("jobs", {"name": "n10"}),
            ("jobs", {"function": "f7", "states": ["done"], "limit": 1000}),
            ("jobs", {"error": "zzz"}),
            ("jobs", {"dead": True, "limit": 1000}),
            ("jobs", {"since": time.time() + 60}),
            ("job", {"handle": "H:bench:7"}),
            ("job", {"handle": last}),
            ("states", {"handles": some}),
            ("explain", {"handle": last}),
            ("times", {"function": "f1"}),
            ("change", {"handle": f"H:bench:{self.jobs - 1}", "priority": "high"}),
            ("complete", {"handle": f"H:bench:{self.jobs - 2}", "result": "done"}),
            ("wait_for", {"handle": last, "after": queued[:-10]}),
            ("spawn", {"handle": queued[0], "jobs": queued[1:-10]}),
            ("declare", {"owner": "app", "schedules": [], "functions": ["f1"]}),
            ("bulk", {"action": "retry", "states": ["failed"], "dry_run": True}),
            ("bulk", {"action": "cancel", "function": "f2", "states": ["ready"], "limit": 1000}),
            ("bulk_actions", {}),
            ("abort_bulk", {"id": "1"}),
            ("pause", {"function": "f1"}),
            ("resume", {"function": "f1"}),
            ("schedule", {"name": "nightly", "function": "f1", "cron": "0 3 * * *"}),
            ("schedules", {}),
            ("pause_schedule", {"name": "nightly"}),
            ("resume_schedule", {"name": "nightly"}),
            ("run_schedule", {"name": "nightly"}),
            ("unschedule", {"name": "nightly"}),
            ("retry", {"states": ["failed"], "limit": 1000}),
            ("retry", {"handle": "H:bench:9"}),
            ("cancel", {"unique": "nobody's"}),
            ("cancel", {"function": "f3", "states": ["ready"], "limit": 1000}),
            ("cancel", {"handle": last}),
            ("limit", {"function": "f4", "concurrency": 3}),
            ("limit", {"function": "f5", "key_concurrency": 3}),
            ("keys", {"function": "f5"}),
            ("graph", {"function": "f5"}),
            ("limit", {"function": "f5", "key_concurrency": 2}),
            ("limit", {"function": "f5", "fair": True}),
            ("limit", {"function": "f5", "key_rate": [1, 3600]}),
            ("limit", {"function": "f5", "key_concurrency": 0, "fair": False, "key_rate": 0}),
        ]


async def measure(
    url: str, jobs: int, queues: int, keys: int, workers: int, only: frozenset[str] = frozenset()
) -> None:
    watch = Watch()
    store = open_store(url)
    hub = Hub(Engine(EngineSettings(functions=0)), store, SystemClock(), Telemetry(time.monotonic))
    await hub.load()
    filled = FilledHub(hub, jobs, queues, keys, workers)
    began = time.monotonic()
    await filled.fill()
    await filled.start_workers()
    print(f"\n{url.partition(':')[0]}: {jobs:,} jobs, made in {time.monotonic() - began:.0f} s\n")
    freeze_existing_objects()  # as the server does
    watch.begin()
    print("| verb | took, ms | longest stall, ms of cpu | wall |\n|---|---:|---:|---:|")
    for verb, arguments in filled.uses():
        if only and verb not in only:
            continue
        rounds = []
        problem = ""
        for _ in range(1 if VERBS[verb].changes else ROUNDS):
            watch.take()
            began = time.monotonic()
            try:
                await filled.use(verb, **arguments)
            except Exception as error:
                problem = f" ({type(error).__name__}: {error})"
            took_ms = (time.monotonic() - began) * 1000
            rounds.append((*watch.take(), took_ms))
        cpu_ms, wall_ms, took_ms = min(rounds)
        shown = ", ".join(f"{name}={short(value)}" for name, value in arguments.items())
        print(f"| `{verb}` {shown}{problem} | {took_ms:.1f} | {cpu_ms:.1f} | {wall_ms:.1f} |", flush=True)
    for topic in () if only and "events" not in only else filled.topics():
        watch.take()
        began = time.monotonic()
        await filled.watch(topic)
        took_ms = (time.monotonic() - began) * 1000
        cpu_ms, wall_ms = watch.take()
        print(f"| topic `{topic.name}` | {took_ms:.1f} | {cpu_ms:.1f} | {wall_ms:.1f} |", flush=True)
    if not only or "series" in only:
        watch.take()
        began = time.monotonic()
        await filled.sample()
        took_ms = (time.monotonic() - began) * 1000
        cpu_ms, wall_ms = watch.take()
        print(f"| a sample for `series` | {took_ms:.1f} | {cpu_ms:.1f} | {wall_ms:.1f} |", flush=True)
    await hub.close()
    await store.close()


def short(value: object) -> str:
    return f"{len(value)} of them" if isinstance(value, list) and len(value) > 5 else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=90, help="functions that share the queued jobs")
    parser.add_argument("--keys", type=int, default=0, help="keys that share the queued jobs; 0: jobs without a key")
    parser.add_argument("--workers", type=int, default=0, help="half of them run a job, and half of them sleep")
    parser.add_argument("--store", action="append")
    parser.add_argument("--only", default="", help="these verbs, with commas between; events: the live feed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchgear-stalls-") as directory:
        for store in options.store or ["memory:", "sqlite:"]:
            url = f"sqlite:{directory}/jobs.db" if store == "sqlite:" else store
            only = frozenset(options.only.split(",")) - {""}
            asyncio.run(measure(url, options.jobs, options.queues, options.keys, options.workers, only))


if __name__ == "__main__":
    main()
