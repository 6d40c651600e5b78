"""What workers say: what they can do, that they want a job, how it goes."""

from __future__ import annotations

from typing import Final

from switchgear.errors import PeerError
from switchgear.model import Function, Job, Worker
from switchgear.numbers import leading_number
from switchgear.protocols.base import MOST_FUNCTIONS, number_in_handle
from switchgear.protocols.gearman.codec import ResponseMaker, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import (
    NOOP,
    GearmanSession,
    first_argument,
    split,
)

HANDLE_BYTES: Final = 64  # gearmand's room for a handle, its end included
CLIENT_ID_BYTES: Final = 127
FIGURES_BYTES: Final = 64  # of the words of a worker about its progress
LONGEST_TIMEOUT_MS: Final = 100 * 366 * 86_400 * 1000
LEAST_TIMEOUT_MS: Final = 1000  # gearmand raises shorter limits to this, and clients rely on it

NO_JOB: Final = response(Packet.NO_JOB)
ASSIGN: Final = ResponseMaker(Packet.JOB_ASSIGN)


def worker_of(session: GearmanSession) -> Worker:
    """This connection as a worker, from the first time it acts like one."""
    worker = session.worker
    if worker is None:
        worker = session.worker = session.engine.add_worker(session, session.protocol, session.client_id)
    return worker


def on_set_client_id(session: GearmanSession, body: bytes) -> None:
    session.client_id = first_argument(body)[:CLIENT_ID_BYTES]
    if session.worker is not None:
        session.worker.name = session.client_id


def function_to_do(session: GearmanSession, name: bytes) -> Function:
    """The function that a worker registers; raises PeerError or Refused."""
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
    if not session.engine.sleep(session.worker or worker_of(session)):
        session.out.append(NOOP)


def grab(session: GearmanSession) -> Job | None:
    """A job for this worker, ready to be sent; answers the request if there is none."""
    worker = session.worker or worker_of(session)
    job = session.engine.take(worker)
    if job is None:
        session.out.append(NO_JOB)
    elif (job.payload is None or session.keeps) and not session.can_hand_out(worker, job):
        session.out.append(NO_JOB)
        return None
    return job


def on_grab_job(session: GearmanSession, body: bytes) -> None:
    job = grab(session)
    if job is None:
        return
    payload = job.payload or b""
    if len(payload) <= session.setup.long_answer_bytes:
        session.out.append(ASSIGN.packet(b"%b%d\0%b\0%b" % (session.prefix, job.id, job.function.name, payload)))
        return
    session.long_bytes += len(payload)
    start = b"%b%d\0%b\0" % (session.prefix, job.id, job.function.name)
    session.out.append(ASSIGN.beginning(start, len(payload)))
    session.out.append(payload)  # by itself, because copying it costs more than all the rest


def assign(session: GearmanSession, job: Job) -> bytes:
    """The handle of a job that this worker now has."""
    session.long_bytes += len(job.payload or b"")
    return session.handle(job)


def on_grab_job_uniq(session: GearmanSession, body: bytes) -> None:
    job = grab(session)
    if job is not None:
        fields = (assign(session, job), job.function.name, job.shown_unique, job.payload or b"")
        session.out.append(response(Packet.JOB_ASSIGN_UNIQ, *fields))


def on_grab_job_all(session: GearmanSession, body: bytes) -> None:
    job = grab(session)
    if job is None:
        return
    fields = [assign(session, job), job.function.name, job.shown_unique]
    kind = Packet.JOB_ASSIGN_UNIQ
    if job.reducer:
        fields.append(job.reducer)
        kind = Packet.JOB_ASSIGN_ALL
    session.out.append(response(kind, *fields, job.payload or b""))


def on_work_complete(session: GearmanSession, body: bytes) -> None:
    end = session.handle_bytes  # handles are as long as the last one, nearly always
    job_id = number_in_handle(body, session.prefix, end) if end < len(body) and not body[end] else 0
    if not job_id:
        end = body.find(b"\0")
        if end < 0:
            split(body, Packet.WORK_COMPLETE)  # raises
        session.handle_bytes = end
        job_id = number_in_handle(body, session.prefix, end)
    worker = session.worker
    job = None
    if worker is not None:
        job = session.engine.complete(worker, job_id, body[end + 1 :])
    if job is None:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")
    elif session.keeps and job.delivery:
        session.pledge()


def on_work_fail(session: GearmanSession, body: bytes) -> None:
    worker = session.worker
    job = session.engine.fail(worker, session.job_id(body)) if worker is not None else None
    if job is not None:
        if job.delivery:
            session.pledge()
    elif session.threw and session.job_id(body) == session.threw:
        session.threw = 0  # some workers say both; the exception has ended the job already
    elif len(body) >= HANDLE_BYTES:
        text = "Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small from snprintf"
        raise PeerError(text, code="ARGUMENT_TOO_LARGE")
    else:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def on_work_exception(session: GearmanSession, body: bytes) -> None:
    handle, error = split(body, Packet.WORK_EXCEPTION)
    worker = session.worker
    job = session.engine.fail(worker, session.job_id(handle), 1, error) if worker is not None else None
    if job is None:
        session.send_error("JOB_NOT_FOUND", "An exception was received for a job that does not exist")
        return
    session.threw = job.id
    if job.delivery:
        session.pledge()


def on_work_status(session: GearmanSession, body: bytes) -> None:
    handle, numerator, denominator = split(body, Packet.WORK_STATUS)
    worker = session.worker
    job = None
    if worker is not None:
        figures = leading_number(numerator), leading_number(denominator)
        words = numerator + b"\0" + denominator
        if len(words) > FIGURES_BYTES:
            words = b""  # they are kept with the job, and passed on as they were understood
        job = session.engine.progress(worker, session.job_id(handle), *figures, text=words)
    if job is None:
        session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def on_work_data(session: GearmanSession, body: bytes) -> None:
    handle, data = split(body, Packet.WORK_DATA)
    worker = session.worker
    if worker is None or session.engine.data(worker, session.job_id(handle), data) is None:
        session.send_error("JOB_NOT_FOUND", "Job does not exist on server")


def on_work_warning(session: GearmanSession, body: bytes) -> None:
    handle, data = split(body, Packet.WORK_WARNING)
    worker = session.worker
    if worker is None or session.engine.warning(worker, session.job_id(handle), data) is None:
        session.send_error("JOB_NOT_FOUND", "Job does not exist on server")
