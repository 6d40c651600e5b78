"""One run: a store, the lives of its server, the history of all that was said, and the verdict."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from torture.history import History, KnownJob, Listed, Violation
from torture.ledger import Ledger
from torture.peers import EVERYBODY, Peer
from torture.peers.gearman import healthy_worker
from torture.peers.load import Load, ServerGone
from torture.server import Operator, ServerProcess, ServerStarter, free_ports, serve_arguments

# While the last jobs are done others come due, and are done the next time.
DRAINS = 5
# A new owner waits so long for the nodes whose workers still run jobs that the last one had started.
RUNS_SECONDS = 2.0


@dataclass
class Tally:
    """What was done and found, of one run or of many."""

    counts: Counter[str] = field(default_factory=Counter)
    longest_recovery_seconds: float = 0.0
    takeover_seconds: list[float] = field(default_factory=list)  # from the end of an owner to an answer of another node
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.longest_recovery_seconds = max(self.longest_recovery_seconds, other.longest_recovery_seconds)
        self.takeover_seconds += other.takeover_seconds
        self.violations += other.violations


@dataclass(frozen=True)
class Plan:
    """How long a run may go on, and what the server is told beyond what the scenario tells it."""

    deadline: float  # by the monotonic clock; a run ends early then, in order
    arguments: Sequence[str] = ()  # for the server

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def seconds_left(self, most: float) -> float:
        return max(0.0, min(most, self.deadline - time.monotonic()))


class Run:
    """Everything about one store."""

    def __init__(self, scenario: str, seed: int, plan: Plan, starter: ServerStarter) -> None:
        self.seed = seed
        self.plan = plan
        self.starter = starter
        self.chance = random.Random(f"{scenario} {seed}")
        self.directory = Path(tempfile.mkdtemp(prefix=f"torture-{scenario}-{seed}-"))
        self.store = self.directory / "store" / "jobs.db"
        self.store.parent.mkdir()
        self.database = ""  # the URL of a database in place of that file
        self.ports = free_ports(random.Random())
        self.tally = Tally()
        self.ledger_path = self.directory / "ledger"
        self._ledger = Ledger(self.ledger_path)
        self.history = History(self._ledger)
        self.settings: dict[str, object] = {}
        self.arguments: list[str] = [*plan.arguments, "--log-level", "warning"]
        self.environment: dict[str, str] = {}  # beyond our own
        self.server: ServerProcess | None = None
        self.wall_offset = 0.0  # of the server's clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.close()
        self._ledger.close()
        self.tally.violations += self.history.violations
        counts = self.history.counts
        self.tally.counts.update(
            submissions=counts["acknowledged"], completions=counts["ended"], hand_outs=counts["assigned"], runs=1
        )
        if not (isinstance(error, Exception) or self.tally.violations):
            shutil.rmtree(self.directory)

    def draw_settings(self) -> None:
        """What may differ between runs: whether attempts end, how much payload is in memory, whether there is a job
        log."""
        attempts = self.chance.choice((0, 0, 3))
        self.settings["engine.attempts"] = attempts
        self.settings["storage.payload_memory_bytes"] = self.chance.choice(("256MiB", "10KiB"))
        if self.chance.random() < 0.7:
            self.arguments += ["--joblog", "off"]
        self.history.record("settings", attempts, time.time() - time.monotonic())

    # --- the server ---

    async def start(self) -> ServerProcess:
        """A server that answers."""
        server = self.launch()
        recovery_seconds = await server.answers()
        self.tally.longest_recovery_seconds = max(self.tally.longest_recovery_seconds, recovery_seconds)
        return server

    def launch(self) -> ServerProcess:
        """A server that may not be up yet."""
        store = self.database or f"sqlite:{self.store}"
        arguments = serve_arguments(self.ports, store, self.settings, *self.arguments)
        self.server = self.starter.start(self.ports, self.directory / "output", arguments, self.environment)
        return self.server

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.gone("kills")

    def stop_quietly(self) -> None:
        """End a server that was started only to be looked at."""
        assert self.server is not None
        self.server.kill()
        self.server.close()
        self.server = None

    def flush_ledger(self) -> None:
        """Let everything be in the file that was recorded so far."""
        self._ledger.flush()

    def gone(self, how: str) -> None:
        assert self.server is not None
        self.server.close()
        self.server = None
        self.history.record("gone")
        self.tally.counts[how] += 1

    def load(self, *, direct: bool = True) -> Load:
        return Load(self.ports, self.history, self.chance, direct=direct)

    # --- the verdict ---

    def compare(self) -> None:
        """Is everything there that should be, and nothing that should not?  Nobody else may speak to the server."""
        operator = Operator(self.ports)
        try:
            rows = operator.unfinished()
            for job in self.history.record("listed", [list(row) for row in rows]):
                self._ask_for(operator, job)
        finally:
            operator.close()

    def _ask_for(self, operator: Operator, job: KnownJob) -> None:
        """An owed job is not listed.  It may have ended because its attempts are spent."""
        token = job.tokens[0]
        function, unique = self.history.submitted_as(token)
        try:
            found = operator.job(job.number, token, unique, function)
        except LookupError as error:
            self.history.record("missing", token, str(error))
            return
        if found["dead"]:
            self.history.record("dead", token)
        else:
            self.history.record("missing", token, f"it is {found['state']}")

    async def drain(self) -> None:
        """Healthy workers of a new server do all that can be done, and then nothing is left that could run."""
        server = await self.start()
        self.compare()
        left: list[Listed] = []
        for _ in range(DRAINS):
            await self._do_all(server)
            operator = Operator(self.ports)
            left = operator.unfinished(["ready", "running"])
            operator.close()
            if not left:
                break
            await asyncio.sleep(RUNS_SECONDS)
        else:
            self.violate("lost", f"jobs are left that no worker is given: {left[:5]}")
        self.compare()
        server.stop()
        self.gone("stops")

    async def _do_all(self, server: ServerProcess) -> None:
        """Let a healthy worker do all that is ready."""
        load = self.load()
        try:
            await healthy_worker(load)
        except ServerGone:
            if not server.is_running():
                self.violate("lost", f"the server vanished while its last jobs were done:\n{server.output()[-2000:]}")
        finally:
            load.close()

    def violate(self, kind: str, text: str) -> None:
        self.tally.violations.append(Violation(kind, text))

    @property
    def is_failed(self) -> bool:
        return bool(self.history.violations or self.tally.violations)


def everybody(chance: random.Random) -> list[Peer]:
    """All kinds of peers, in another order each time, since the first ones make the most of a short life."""
    peers = list(EVERYBODY)
    chance.shuffle(peers)
    return peers
