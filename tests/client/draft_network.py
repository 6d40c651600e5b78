"""Applications, workers and servers of the draft in one process, without a wire and with time that stands still.

`SimulatedNetwork` is a driver: it takes the steps of flows.  Where a real one would wait, it first
delivers what was sent, then does what a test has planned, and then lets the time pass.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from switchgear.client.address import ServerAddress
from switchgear.client.draft.flow_steps import (
    CloseStep,
    DraftConnection,
    Flow,
    OpenStep,
    RunStep,
    SendStep,
    Step,
    WaitStep,
)
from switchgear.client.draft.worker_flow import DraftTask, DraftWorkerObserver, TaskValue, failed, succeeded
from switchgear.errors import ServerRefused
from switchgear.protocols.gearman_draft.messages import Result
from tests.protocols.gearman_draft.harness import MixedHarness, MixedTalker

T = TypeVar("T")


class WouldWaitForEverError(AssertionError):
    """Nothing is planned, and there is no deadline."""


class SimulatedNetwork:
    """Some servers, and everybody's time."""

    def __init__(self, servers: int = 1) -> None:
        self.now = 1000.0
        self.harnesses: dict[int, MixedHarness] = {port: MixedHarness() for port in range(1, servers + 1)}
        self.down: set[int] = set()  # refuse connections
        self.silent: set[int] = set()  # accept, and say nothing from then on
        self.sent: list[tuple[int, bytes]] = []  # port, what was sent there
        self.handler: Callable[[DraftTask], TaskValue] = lambda task: task.args
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._talkers: dict[DraftConnection, MixedTalker] = {}
        self._calls: list[DraftConnection] = []

    @property
    def urls(self) -> list[str]:
        return [f"gearman://server:{port}" for port in self.harnesses]

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let this happen so much later."""
        heappush(self._planned, (self.now + seconds, next(self._order), action))

    def peer(self, port: int, name: str = "peer") -> MixedTalker:
        """Somebody else at a server."""
        return self.harnesses[port].talker(name)

    def kill(self, port: int) -> None:
        """As the power cut does it."""
        self.down.add(port)
        self.harnesses[port] = MixedHarness()
        for line in [line for line in self._talkers if line.address.port == port]:
            del self._talkers[line]
            line.lost(f"{line.address} is gone")

    def start(self, port: int) -> None:
        """It is back, and remembers nothing."""
        self.down.discard(port)

    # --- being a driver ---

    def perform(self, flow: Flow[T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = self._take(flow.send(answer))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def announce(self, task: DraftTask, data: bytes) -> None:
        self._send(task.connection, data)

    def _take(self, step: Step) -> Any:
        match step:
            case WaitStep(condition, deadline):
                return self._until(condition, deadline)
            case SendStep(line, data):
                return self._send(line, data)
            case OpenStep(line):
                line.opening()
                return self._calls.append(line)
            case CloseStep(line, problem):
                return self._shut(line, problem)
            case RunStep(task):
                assert isinstance(task, DraftTask)
                return self._run(task)

    def _run(self, task: DraftTask) -> Result | None:
        try:
            result = succeeded(self.handler(task))
        except Exception as error:
            result = failed(error)
        return result if task.connection.is_open else None

    def _until(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        while not condition():
            if self._deliver():
                continue
            moment = self._planned[0][0] if self._planned else None
            if moment is not None and (deadline is None or moment <= deadline):
                self._pass_time(moment - self.now)
                heappop(self._planned)[2]()
            elif deadline is None:
                raise WouldWaitForEverError
            else:
                self._pass_time(deadline - self.now)
                return condition()
        return True

    def _pass_time(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
        for harness in self.harnesses.values():
            harness.pass_time(max(0.0, seconds))

    def _send(self, line: DraftConnection, data: bytes) -> None:
        if line.is_open:
            self.sent.append((line.address.port, data))
            if line.address.port not in self.silent:
                self._talkers[line].send(data)

    def _deliver(self) -> bool:
        """Let one thing arrive; False: nothing was on its way."""
        if self._calls:
            self._connect(self._calls.pop(0))
            return True
        for line, talker in list(self._talkers.items()):
            data = talker.take_bytes()
            if data:
                line.receive(data)
                return True
            if talker.wire.is_closed:
                self._shut(line, f"{line.address} closed the connection")
                return True
        return False

    def _connect(self, line: DraftConnection) -> None:
        if line.address.port in self.down:
            line.lost(f"cannot connect to {line.address}: Connection refused")
            return
        harness = self.harnesses[line.address.port]
        self._talkers[line] = harness.talker(f"line {next(self._order)}")
        self._send(line, line.opened())

    def _shut(self, line: DraftConnection, problem: str) -> None:
        talker = self._talkers.pop(line, None)
        if talker is not None and talker.name in talker.harness.talkers:
            talker.leave()
        line.lost(problem)


class RecordingObserver(DraftWorkerObserver):
    """Writes down what a worker does."""

    def __init__(self) -> None:
        self.entries: list[tuple[object, ...]] = []

    def connected(self, server: ServerAddress) -> None:
        self.entries.append(("connected", server.port))

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        self.entries.append(("disconnected", server.port))

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        self.entries.append(("refused", server.port, error.code))

    def task_started(self, task: DraftTask) -> None:
        self.entries.append(("started", task.server.port, task.args))

    def task_ended(self, task: DraftTask, code: int, seconds: float) -> None:
        self.entries.append(("ended", task.args, code))

    def task_dropped(self, task: DraftTask) -> None:
        self.entries.append(("dropped", task.args))

    def sleeping(self) -> None:
        self.entries.append(("sleeping",))

    def woken(self, server: ServerAddress | None) -> None:
        self.entries.append(("woken", server and server.port))

    def started(self) -> list[bytes]:
        """The arguments of the tasks that were started, in order."""
        return [entry[2] for entry in self.of("started") if isinstance(entry[2], bytes)]

    def of(self, *words: str) -> list[tuple[object, ...]]:
        """The entries that begin with one of these words."""
        return [entry for entry in self.entries if entry[0] in words]
