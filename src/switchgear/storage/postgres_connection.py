"""`PostgresConnection`: a connection to PostgreSQL that the event loop itself reads and writes.

A request is a list of statements, sent as one pipeline: one write, one answer. A thread beside the event loop would
have to get the interpreter lock from a busy loop for each step; libpq without blocking needs none.

libpq hides errors of writing: a connection that died while it was idle accepts a request, and never answers. So the
connection is read all the time, is read once after each write, and every request has a time limit. The limit is for
progress: a long request that gets on is not given up.

A caller may be cancelled. Its request stays, the answer is dropped when it comes, and the next request waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from switchgear.errors import ConfigError, StorageError
from switchgear.postgresql import connect
from switchgear.storage.lone_thread import LoneThread
from switchgear.text import in_one_line, without_secrets

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

__all__ = ["NOT_AS_EXPECTED", "PostgresConnection", "PostgresRefusal", "Statement", "Step"]

# The oldest libpq with pipelines.
OLDEST_LIBPQ: Final = 140_000

# A request that makes no progress for so long has failed.
PATIENCE_S: Final = 5.0

# So much is given to libpq at a time; the rest waits until that is on its way.
SENT_AT_ONCE_BYTES: Final = 1_048_576

# Division by zero: how a statement says that what it relies on does not hold.
NOT_AS_EXPECTED: Final = "22012"

LOST: Final = "08006"


class Statement(NamedTuple):
    """A statement with numbered parameters, and the name under which it is prepared."""

    name: bytes
    text: bytes


PROCESS: Final = Statement(b"sg_process", b"SELECT pg_backend_pid()")
# Plans that do not depend on the length of an array: a batch is looked up by id, whatever its size. A plan is made
# once, often while the tables are empty, and would then read whole tables for each batch, until PostgreSQL has analyzed
# them, after a minute: so it uses an index wherever there is one. And limits that the database or the role has for
# everybody would end idle connections, and long commits again and again.
SESSION: Final = Statement(
    b"sg_session",
    b"SELECT set_config(name, CASE WHEN name = 'plan_cache_mode' THEN 'force_generic_plan'"
    b" WHEN name = 'default_transaction_read_only' OR name LIKE 'enable%' THEN 'off' ELSE '0' END, false)"
    b" FROM pg_settings WHERE name IN ('plan_cache_mode', 'default_transaction_read_only', 'statement_timeout',"
    b" 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin',"
    b" 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
)

Step: TypeAlias = tuple[Statement, Sequence[bytes | None]]  # a statement and its parameters, in binary form


class PostgresRefusal(StorageError):
    """PostgreSQL refused a statement, and nothing of its request was stored.

    `code` is the SQLSTATE; `step` is the place of the statement in its request.
    """

    def __init__(self, text: str, code: str, step: int) -> None:
        super().__init__(text)
        self.code = code
        self.step = step


class PostgresConnection:
    """One connection, made when it is first needed and again after it was lost."""

    def __init__(self, url: str, parameters: Mapping[str, Any], patience_s: float = PATIENCE_S) -> None:
        from psycopg import Error, pq

        if pq.version() < OLDEST_LIBPQ:
            raise ConfigError(
                f"a store in PostgreSQL needs libpq 14 or later, and this one is {pq.version() // 10_000}"
            )
        self._pq = pq
        self._error = Error
        self._url = url  # with its password, to be removed from errors
        self._shown_url = without_secrets(url)
        self._parameters = parameters
        self._patience_s = patience_s
        self.is_pooled = False  # by a pooler: the next request may get another session
        self._pgconn: PGconn | None = None
        self._descriptor = -1
        self._prepared: set[bytes] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy = asyncio.Lock()
        self._answer: asyncio.Future[list[PGresult]] | None = None  # of the request in flight
        self._results: list[PGresult] = []
        self._expected: list[bytes | None] = []  # for each result to come the statement that was prepared, if any
        self._refusal: PostgresRefusal | None = None
        self._drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._progress_s = 0.0  # when the request in flight last got on

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as anyone knows."""
        return self._pgconn is not None

    # --- opening and closing ---

    async def open(self) -> None:
        """Connect, unless connected; raises StorageError."""
        self._use_running_loop()
        async with self._busy:
            await self._open()

    async def _open(self) -> None:
        if self._pgconn is not None:
            return
        thread = LoneThread("postgres-connect")
        try:
            self._pgconn = pgconn = await asyncio.wrap_future(thread.submit(connect, self._parameters))
        except StorageError as error:
            reason = self._without_secrets(str(error))
            raise StorageError(f"{self._shown_url} cannot be reached: {reason}") from error
        finally:
            thread.end_soon()
        self._descriptor = pgconn.socket
        self._prepared.clear()
        pgconn.nonblocking = 1
        pgconn.enter_pipeline_mode()
        self._loop = None
        self.is_pooled = True  # until it is known: nothing is prepared
        self._use_running_loop(keep_lock=True)
        (process,) = await self._request([(PROCESS, ())])
        # A pooler gives its clients numbers of its own.
        self.is_pooled = int.from_bytes(process.get_value(0, 0) or b"", "big") != pgconn.backend_pid
        if not self.is_pooled:
            await self._request([(SESSION, ())])

    def _use_running_loop(self, *, keep_lock: bool = False) -> None:
        """Be read by the loop that runs now. A server has one; a program may run several, one after the other."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._answer is not None or self._expected:
            self._discard("its event loop has ended")
        self._loop = loop
        if not keep_lock:
            self._busy = asyncio.Lock()
        self._timer = None
        if self._pgconn is not None:
            loop.add_reader(self._descriptor, self._on_readable)

    def close(self) -> None:
        """Close the connection. A request in flight fails."""
        self._discard("it was closed")

    def _discard(self, reason: str) -> None:
        """Close the connection in any state; the request in flight fails."""
        pgconn, self._pgconn = self._pgconn, None
        if pgconn is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
                self._loop.remove_writer(self._descriptor)
            pgconn.finish()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._results, self._expected, self._refusal = [], [], None
        error = StorageError(f"{self._shown_url}: the connection was lost: {reason}")
        answer, self._answer = self._answer, None
        drained, self._drained = self._drained, None
        for future in (answer, drained):
            if future is not None and not future.done() and not future.get_loop().is_closed():
                future.set_exception(error)
                future.exception()  # it may be that nobody waits any more

    # --- requests ---

    async def run(self, steps: Iterable[Step]) -> list[PGresult]:
        """The results of the statements, which are sent as one pipeline.

        Raises PostgresRefusal if one of them failed, and none after it was run; StorageError if the connection was
        lost, and then nobody knows what was run.
        """
        self._use_running_loop()
        async with self._busy:
            if self._answer is not None:
                await asyncio.wait([self._answer])  # its caller was cancelled
            await self._open()
            return await self._request(steps)

    async def _request(self, steps: Iterable[Step]) -> list[PGresult]:
        answer = self._answer = asyncio.get_running_loop().create_future()
        is_sent = False
        try:
            await self._send(steps)
            is_sent = True
        finally:
            if not is_sent:
                self._discard("the request was given up")
        return await asyncio.shield(answer)

    async def _send(self, steps: Iterable[Step]) -> None:
        loop = asyncio.get_running_loop()
        self._progress_s = loop.time()
        self._timer = loop.call_later(self._patience_s, self._check_progress)
        size = 0
        try:
            for statement, parameters in steps:
                self._send_step(statement, parameters)
                size += sum(map(len, filter(None, parameters)))
                if size > SENT_AT_ONCE_BYTES:
                    size = 0
                    await self._drain()
                    await asyncio.sleep(0)
                    self._require()
            pgconn = self._require()
            pgconn.pipeline_sync()
            self._flush()
        except self._error as error:
            raise StorageError(f"{self._shown_url}: {self._without_secrets(str(error))}") from error

    def _send_step(self, statement: Statement, parameters: Sequence[bytes | None]) -> None:
        pgconn = self._require()
        formats = [1] * len(parameters)
        values = parameters or None
        if self.is_pooled:
            pgconn.send_query_params(statement.text, values, None, formats or None, 1)
        else:
            if statement.name not in self._prepared and statement.name not in self._expected:
                pgconn.send_prepare(statement.name, statement.text)
                self._expected.append(statement.name)
            pgconn.send_query_prepared(statement.name, values, formats or None, 1)
        self._expected.append(None)

    def _require(self) -> PGconn:
        if self._pgconn is None:
            raise StorageError(f"{self._shown_url}: the connection was lost")
        return self._pgconn

    def _flush(self) -> None:
        """Write what libpq has buffered, and read once: only reading tells that the connection is dead."""
        pgconn = self._require()
        assert self._loop is not None
        if pgconn.flush():
            self._loop.add_writer(self._descriptor, self._on_writable)
        elif self._drained is not None:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)
        self._on_readable()

    async def _drain(self) -> None:
        """Wait until libpq has written everything that it was given."""
        self._drained = drained = asyncio.get_running_loop().create_future()
        self._flush()
        await drained

    # --- called by the event loop ---

    def _on_writable(self) -> None:
        pgconn = self._pgconn
        if pgconn is None or self._loop is None:
            return
        self._progress_s = self._loop.time()
        try:
            if not pgconn.flush():
                self._loop.remove_writer(self._descriptor)
                if self._drained is not None and not self._drained.done():
                    self._drained.set_result(None)
                self._drained = None
        except self._error as error:
            self._discard(self._without_secrets(str(error)))
            return
        self._on_readable()

    def _on_readable(self) -> None:
        pgconn = self._pgconn
        if pgconn is None or self._loop is None:
            return
        try:
            pgconn.consume_input()
            if self._answer is not None:
                self._progress_s = self._loop.time()
                self._take_results(pgconn)
            elif pgconn.status != self._pq.ConnStatus.OK:
                self._discard("PostgreSQL closed it")
        except self._error as error:
            self._discard(self._without_secrets(str(error)))

    def _take_results(self, pgconn: PGconn) -> None:
        ends = 0
        status = self._pq.ExecStatus
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                ends += 1
                if ends > 2:  # libpq expects nothing more
                    if pgconn.status != self._pq.ConnStatus.OK:
                        self._discard("PostgreSQL closed it")
                    return
                continue
            ends = 0
            if result.status == status.PIPELINE_SYNC:
                self._answer_request()
                return
            self._take_result(result)

    def _take_result(self, result: PGresult) -> None:
        status = self._pq.ExecStatus
        prepared = self._expected.pop(0) if self._expected else None
        if result.status in (status.COMMAND_OK, status.TUPLES_OK):
            if prepared is not None:
                self._prepared.add(prepared)
            else:
                self._results.append(result)
        elif self._refusal is None:
            code = (result.error_field(self._pq.DiagnosticField.SQLSTATE) or LOST.encode()).decode()
            reason = self._without_secrets(result.get_error_message()) or f"status {result.status}"
            self._refusal = PostgresRefusal(f"{self._shown_url}: {reason}", code, len(self._results))

    def _answer_request(self) -> None:
        answer, self._answer = self._answer, None
        results, self._results = self._results, []
        refusal, self._refusal = self._refusal, None
        self._expected = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if answer is None or answer.done():
            return
        if refusal is not None:
            answer.set_exception(refusal)
            answer.exception()
        else:
            answer.set_result(results)

    def _check_progress(self) -> None:
        assert self._loop is not None
        left_s = self._progress_s + self._patience_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_progress)
        else:
            self._timer = None
            self._discard(f"no answer for {self._patience_s:g} s")

    def _without_secrets(self, text: str) -> str:
        return in_one_line(without_secrets(text, self._url))
