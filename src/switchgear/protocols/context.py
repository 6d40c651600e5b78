"""`Context`: the interface of the server for its sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from switchgear.access.permissions import Permissions
from switchgear.engine.engine import Engine
from switchgear.model import Job, Worker
from switchgear.protocols.pending_read import PendingRead, Reading, Step
from switchgear.protocols.transport import PeerTransport

if TYPE_CHECKING:
    from switchgear.protocols.output import Output
    from switchgear.protocols.session import Session

__all__ = ["Context", "KeyHolder", "Listed"]


class KeyHolder(NamedTuple):
    """An unfinished job with a unique key, as another server describes it."""

    function: bytes
    is_running: bool
    numerator: int
    denominator: int
    subscribers: int


class Listed(Protocol):
    """A connection as operators see it in lists."""

    transport: PeerTransport
    client_id: bytes  # the name that the peer has given itself
    worker: Worker | None
    permissions: Permissions


@mypyc_attr(allow_interpreted_subclasses=True)
class Context(ABC):
    """The interface of the hub for sessions."""

    engine: Engine
    is_durable: bool  # whether there is a store that survives the server
    marked: list[Output]  # outputs to be sent at the end of this turn

    @abstractmethod
    def read_payloads(self, job_ids: Sequence[int]) -> Reading[dict[int, bytes]]:
        """The payloads of these jobs, as far as the store has them, by id; raises Refused if they cannot be read."""

    def awaited_payload(self, worker: Worker) -> PendingRead | None:
        """The read after which a worker that got no job should ask again: the payload of a job for it is being read.

        `None` if the worker need not wait.
        """
        return None

    @abstractmethod
    def find_jobs(self, job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        """Jobs by id, unfinished or from the history; raises Refused if the history cannot be read.

        A durable job shows its end only when that is stored, and until then the state that the store has.
        """

    def find_job(self, job_id: int) -> Reading[Job | None]:
        """One job by id; see `find_jobs`."""
        found = yield from self.find_jobs((job_id,))
        return found.get(job_id)

    def find_live(self, job: Job) -> Reading[Job]:
        """A job that was read from the store, in its present state and with its progress: if it is unfinished, another
        server may have it. Raises Refused if that one does not answer."""
        yield from ()
        return job

    def find_key_elsewhere(self, unique: bytes) -> Reading[list[KeyHolder]]:
        """The unfinished jobs with this unique key that other servers have. Raises Refused if one of these does not
        answer, and none of the others has such a job."""
        yield from ()
        return []

    def find_unkept_end(self, job_id: int) -> Job | None:
        """A job that has ended, but whose end is not stored yet; an answer with it has to `await_commit`. See
        `find_job`."""
        return None

    @abstractmethod
    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> Reading[dict[bytes, Job]]:
        """By name, the newest finished job of each name that was created since then; raises Refused like `find_job`.

        A job whose end is not stored yet may be returned in the state that the store has.
        """

    @abstractmethod
    def find_kept(self, before_id: int, limit: int) -> Reading[list[Job]]:
        """The newest jobs below this id that the store has, the newest first; raises Refused like `find_job`."""

    @abstractmethod
    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answer: list[Any]) -> Iterator[Step]:
        """Run an operator verb in steps; at the end the answer is added to the list.

        See net.operations.dispatcher.  Raises Refused or LookupError.
        """

    @property
    def node_name(self) -> str:
        """The name of this server among those that own functions together; empty if it is alone."""
        return ""

    def watch_in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        """Collect the present rows of a live table in steps: at the end a list of pairs of a key and a row is added.

        See net.operations.live_rows.
        """
        raise LookupError(f"this server has no topic {topic}")

    def work_off(self, operation: Iterator[Step]) -> None:
        """Run an operation in steps, over as many turns as it takes; see net.long_operations."""
        for pauses in operation:
            if pauses:
                return

    def loop_lag_seconds(self) -> float:
        """The longest delay of the event loop within the last half minute; see net.monitoring.loop_lag."""
        return 0.0

    def metrics(self, is_open: bool, http_requests: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
        """The figures of the server in the text format of Prometheus or, if `is_open`, of OpenMetrics, in small pieces,
        some of them empty; see net.monitoring.metrics.  `http_requests` are counts of answers by route and status."""
        return iter(())

    @abstractmethod
    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        """Count a violation of the protocol by a peer."""

    def audit(  # noqa: B027 - a server without a log for it has nothing to note
        self, session: Session, verb: str, target: str, outcome: str = "done"
    ) -> None:
        """Note what an operator has done, or was refused, for the audit log."""

    def count_authentication_failed(self, session: Session) -> None:
        """Count and log that no identity has the credential of a peer."""
        self.count_bad_input(session, "AUTHENTICATION_FAILED", "no identity has this credential")

    def count_access_refused(self, session: Session, text: str) -> None:
        """Count and log that a peer was refused something that it may not do."""
        self.count_bad_input(session, "NOT_ALLOWED", text)

    @abstractmethod
    def soon(self, action: Callable[[], object]) -> None:
        """Call this in the next turn: for reactions to events of the engine, which must not be called from an event."""

    @abstractmethod
    def request_stop(self, *, graceful: bool) -> None:
        """Stop the server, on request of a peer that may do so."""
