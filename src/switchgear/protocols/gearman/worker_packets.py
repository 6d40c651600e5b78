"""Handlers of the packets that workers send: CAN_DO, GRAB_JOB, PRE_SLEEP and the WORK_* reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from switchgear.errors import PeerError
from switchgear.model import Function, Job, Worker
from switchgear.numbers import leading_number
from switchgear.protocols.gearman.codec import JobPackets, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import (
    NOOP,
    GearmanSession,
    first_argument,
    split,
)
from switchgear.protocols.handles import MOST_FUNCTIONS, number_in_handle
from switchgear.protocols.pending_read import PendingRead, Step

HANDLE_BYTES: Final = 64  # gearmand's buffer for a handle, including its end
CLIENT_ID_BYTES: Final = 127
FIGURES_BYTES: Final = 64  # of each progress figure
LONGEST_TIMEOUT_MS: Final = 100 * 366 * 86_400 * 1000
LEAST_TIMEOUT_MS: Final = 1000  # gearmand raises shorter limits to this, and clients rely on it

NO_JOB: Final = response(Packet.NO_JOB)
ASSIGN: Final = JobPackets(Packet.JOB_ASSIGN)


def worker_of(session: GearmanSession) -> Worker:
    """The worker of this connection, registered on first use."""
    worker = session.worker
    if worker is None:
        worker = session.worker = session.engine.add_worker(session, session.protocol, session.client_id)
    return worker


def on_set_client_id(session: GearmanSession, body: bytes) -> None:
    session.client_id = first_argument(body)[:CLIENT_ID_BYTES]
    if session.worker is not None:
        session.worker.name = session.client_id


def function_to_do(session: GearmanSession, name: bytes) -> Function:
    """The function of a registration; raises PeerError or Refused."""
    known = session.engine.functions.get(session.name_of(name))
    worker = session.worker
    if worker is not None and len(worker.timeouts_us) >= MOST_FUNCTIONS and known not in worker.timeouts_us:
        raise PeerError(f"a worker may register {MOST_FUNCTIONS} functions", code="ARGUMENT_TOO_LARGE")
    if known is None or worker is None or known not in worker.timeouts_us:
        session.engine.refuse_registrations(1)
    return known or session.engine.function_named(name)


def on_can_do(session: GearmanSession, body: bytes) -> None:
    function = function_to_do(session, first_argument(body))
    session.engine.can_do(worker_of(session), function)


def on_can_do_timeout(session: GearmanSession, body: bytes) -> None:
    name, text = split(body, Packet.CAN_DO_TIMEOUT)
    timeout_ms = leading_number(text)
    if timeout_ms:
        timeout_ms = min(max(timeout_ms, LEAST_TIMEOUT_MS), LONGEST_TIMEOUT_MS)
    function = function_to_do(session, name)
    session.engine.can_do(worker_of(session), function, timeout_ms * 1000)


def on_cant_do(session: GearmanSession, body: bytes) -> None:
    function: Function | None = session.engine.functions.get(first_argument(body))
    if function is not None and session.worker is not None:
        session.engine.cannot_do(session.worker, function)


def on_reset_abilities(session: GearmanSession, body: bytes) -> None:
    if session.worker is not None:
        session.engine.forget_functions(session.worker)


def on_pre_sleep(session: GearmanSession, body: bytes) -> None:
    worker = session.worker or worker_of(session)
    if session.setup.sleep_ends_time_limits:
        session.engine.end_own_limits(worker)
    if not session.engine.sleep(worker):
        session.out.append(NOOP)


def take_job(session: GearmanSession) -> Job | None:
    """A job for this worker, if there is one now."""
    return session.engine.take(session.worker or worker_of(session))


def answer_later(session: GearmanSession, send: Callable[[GearmanSession, Job], None]) -> None:
    """Answer that there is no job, unless the payload of one is being read."""
    worker = worker_of(session)
    wait = session.context.awaited_payload(worker)
    if wait is None:
        session.out.append(NO_JOB)
    else:
        session.work_off(grab_when_read(session, worker, wait, send))


def grab_when_read(
    session: GearmanSession, worker: Worker, wait: PendingRead, send: Callable[[GearmanSession, Job], None]
) -> Iterator[Step]:
    job = yield from session.take_when_read(worker, wait)
    if job is None:
        session.send(NO_JOB)
    else:
        send(session, job)
        session.mark()


def on_grab_job(session: GearmanSession, body: bytes) -> None:
    job = session.engine.take(session.worker or worker_of(session))
    if job is None:
        answer_later(session, send_assign)
    else:
        send_assign(session, job)


def send_assign(session: GearmanSession, job: Job) -> None:
    payload = job.payload
    if payload is None:
        payload = b""
    name = job.function.told_name
    start = ASSIGN.start(session.prefix, job.id, len(name) + len(payload) + 2)
    if len(payload) <= session.setup.long_answer_bytes:
        session.out.append(b"%b%d\0%b\0%b" % (start, job.id, name, payload))
        return
    session.long_bytes += len(payload)
    session.out.append(b"%b%d\0%b\0" % (start, job.id, name))
    session.out.append(payload)  # separate, because copying it costs more than all the rest


def assign(session: GearmanSession, job: Job) -> bytes:
    """Note that this worker has the job; returns its handle."""
    session.long_bytes += len(job.payload or b"")
    return session.handle(job)


def on_grab_job_uniq(session: GearmanSession, body: bytes) -> None:
    job = take_job(session)
    if job is None:
        answer_later(session, send_assign_uniq)
    else:
        send_assign_uniq(session, job)


def send_assign_uniq(session: GearmanSession, job: Job) -> None:
    fields = (assign(session, job), job.function.told_name, job.client_unique, job.payload or b"")
    session.out.append(response(Packet.JOB_ASSIGN_UNIQ, *fields))


def on_grab_job_all(session: GearmanSession, body: bytes) -> None:
    job = take_job(session)
    if job is None:
        answer_later(session, send_assign_all)
    else:
        send_assign_all(session, job)


def send_assign_all(session: GearmanSession, job: Job) -> None:
    fields = [assign(session, job), job.function.told_name, job.client_unique]
    kind = Packet.JOB_ASSIGN_UNIQ
    if job.reducer:
        fields.append(job.reducer)
        kind = Packet.JOB_ASSIGN_ALL
    session.out.append(response(kind, *fields, job.payload or b""))


def on_work_complete(session: GearmanSession, body: bytes) -> None:
    end = session.handle_bytes  # nearly all handles are as long as the last one
    job_id = number_in_handle(body, session.prefix, end) if end < len(body) and not body[end] else 0
    if not job_id:
        end = body.find(b"\0")
        if end < 0:
            split(body, Packet.WORK_COMPLETE)  # raises
        session.handle_bytes = end
        job_id = number_in_handle(body, session.prefix, end)
    complete(session, job_id, body[end + 1 :])


def complete_long(session: GearmanSession, arguments: list[bytes]) -> None:
    """Handle a long WORK_COMPLETE packet."""
    handle, result = arguments
    complete(session, session.job_id(handle), result)


def complete(session: GearmanSession, job_id: int, result: bytes) -> None:
    worker = session.reporter(job_id)
    job = None
    if worker is not None:
        job = session.engine.complete(worker, job_id, result)
    if job is None:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def on_work_fail(session: GearmanSession, body: bytes) -> None:
    job_id = session.job_id(body)
    worker = session.reporter(job_id)
    job = session.engine.fail(worker, job_id) if worker is not None else None
    if job is not None:
        return
    if session.threw and job_id == session.threw:
        session.threw = 0  # some workers send both; the exception has already ended the job
    elif len(body) >= HANDLE_BYTES:
        text = "Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small from snprintf"
        raise PeerError(text, code="ARGUMENT_TOO_LARGE")
    else:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def on_work_exception(session: GearmanSession, body: bytes) -> None:
    work_exception(session, split(body, Packet.WORK_EXCEPTION))


def work_exception(session: GearmanSession, arguments: list[bytes]) -> None:
    handle, error = arguments
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    job = session.engine.fail(worker, job_id, 1, error) if worker is not None else None
    if job is None:
        session.send_error("JOB_NOT_FOUND", "An exception was received for a job that does not exist")
        return
    session.threw = job.id


def on_work_status(session: GearmanSession, body: bytes) -> None:
    handle, numerator, denominator = split(body, Packet.WORK_STATUS)
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    job = None
    if worker is not None:
        figures = leading_number(numerator), leading_number(denominator)
        words = numerator + b"\0" + denominator
        if len(words) > FIGURES_BYTES:
            words = b""  # stored with the job, and passed on as parsed
        job = session.engine.progress(worker, job_id, *figures, text=words)
    if job is None:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def on_work_data(session: GearmanSession, body: bytes) -> None:
    work_data(session, split(body, Packet.WORK_DATA))


def work_data(session: GearmanSession, arguments: list[bytes]) -> None:
    handle, data = arguments
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    if worker is None or session.engine.data(worker, job_id, data) is None:
        session.send_error("JOB_NOT_FOUND", "Job does not exist on server")


def on_work_warning(session: GearmanSession, body: bytes) -> None:
    work_warning(session, split(body, Packet.WORK_WARNING))


def work_warning(session: GearmanSession, arguments: list[bytes]) -> None:
    handle, data = arguments
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    if worker is None or session.engine.warning(worker, job_id, data) is None:
        session.send_error("JOB_NOT_FOUND", "Job does not exist on server")
