"""The table of the protocol's verbs, and the loop that looks them up.

The verbs that every job needs are called by name and not through the table: compiled, that is a call of a C function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import HIGH, LOW, NORMAL, Delivery
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman import clients, control, extensions, workers
from switchgear.protocols.gearman.clients import submit
from switchgear.protocols.gearman.codec import TEXT
from switchgear.protocols.gearman.extensions import on_credit
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession
from switchgear.protocols.gearman.workers import on_grab_job, on_pre_sleep, on_work_complete

__all__ = ["ON_REQUEST", "handle_messages"]

SUBMIT_JOB: Final = int(Packet.SUBMIT_JOB)
SUBMIT_JOB_BG: Final = int(Packet.SUBMIT_JOB_BG)
GRAB_JOB: Final = int(Packet.GRAB_JOB)
WORK_COMPLETE: Final = int(Packet.WORK_COMPLETE)
PRE_SLEEP: Final = int(Packet.PRE_SLEEP)
CREDIT: Final = int(Packet.CREDIT)
CONTROL: Final = int(Packet.CONTROL)
WAIT: Final = int(Delivery.WAIT)
HANDLE: Final = int(Delivery.HANDLE)

# What operators ask for takes up to a millisecond; after so many of these others have their turn.
COMMANDS_PER_TURN: Final = 10


def handle_messages(session: GearmanSession, messages: list[Message]) -> None:
    """Do what a peer has asked for, in order, as long as it can take the answers; the rest is put off."""
    long_bytes = session.setup.long_bytes
    memory = session.engine.memory
    commands = 0
    for index, (kind, body) in enumerate(messages):
        if session.long_bytes > long_bytes or (memory.answer_bytes and memory.answers_must_wait):
            session.put_off = messages[index:]
            return
        try:
            if kind == SUBMIT_JOB_BG:
                submit(session, kind, body, NORMAL, HANDLE)
            elif kind == GRAB_JOB:
                on_grab_job(session, body)
            elif kind == WORK_COMPLETE:
                on_work_complete(session, body)
            elif kind == SUBMIT_JOB:
                submit(session, kind, body, NORMAL, WAIT)
            elif kind == PRE_SLEEP:
                on_pre_sleep(session, body)
            elif kind == CREDIT:
                on_credit(session, body)
            else:
                handle_by_table(session, kind, body)
                if session.closing:
                    return
                if kind in (CONTROL, TEXT):  # each may take its time
                    commands += 1
                    if session.operation is not None or commands == COMMANDS_PER_TURN:
                        session.put_off = messages[index + 1 :]
                        return
        except (PeerError, Refused) as error:
            session.answer_error(error)


def handle_by_table(session: GearmanSession, kind: int, body: bytes) -> None:
    handler = ON_REQUEST.get(kind)
    if handler is None:
        session.not_a_request(kind, body)
    else:
        handler(session, body)


def submitter(kind: Packet, priority: int, delivery: Delivery) -> Callable[[GearmanSession, bytes], None]:
    """The handler of one of the plain submit packets."""

    def on_submit(session: GearmanSession, body: bytes) -> None:
        submit(session, kind, body, priority, delivery)

    return on_submit


ON_REQUEST: Final[dict[int, Callable[[GearmanSession, bytes], None]]] = {
    Packet.CAN_DO: workers.on_can_do,
    Packet.CANT_DO: workers.on_cant_do,
    Packet.RESET_ABILITIES: workers.on_reset_abilities,
    Packet.PRE_SLEEP: workers.on_pre_sleep,
    Packet.SUBMIT_JOB: submitter(Packet.SUBMIT_JOB, NORMAL, Delivery.WAIT),
    Packet.GRAB_JOB: workers.on_grab_job,
    Packet.WORK_STATUS: workers.on_work_status,
    Packet.WORK_COMPLETE: workers.on_work_complete,
    Packet.WORK_FAIL: workers.on_work_fail,
    Packet.GET_STATUS: clients.on_get_status,
    Packet.ECHO_REQ: clients.on_echo,
    Packet.SUBMIT_JOB_BG: submitter(Packet.SUBMIT_JOB_BG, NORMAL, Delivery.HANDLE),
    Packet.SUBMIT_JOB_HIGH: submitter(Packet.SUBMIT_JOB_HIGH, HIGH, Delivery.WAIT),
    Packet.SET_CLIENT_ID: workers.on_set_client_id,
    Packet.CAN_DO_TIMEOUT: workers.on_can_do_timeout,
    Packet.WORK_EXCEPTION: workers.on_work_exception,
    Packet.OPTION_REQ: clients.on_option,
    Packet.WORK_DATA: workers.on_work_data,
    Packet.WORK_WARNING: workers.on_work_warning,
    Packet.GRAB_JOB_UNIQ: workers.on_grab_job_uniq,
    Packet.SUBMIT_JOB_HIGH_BG: submitter(Packet.SUBMIT_JOB_HIGH_BG, HIGH, Delivery.HANDLE),
    Packet.SUBMIT_JOB_LOW: submitter(Packet.SUBMIT_JOB_LOW, LOW, Delivery.WAIT),
    Packet.SUBMIT_JOB_LOW_BG: submitter(Packet.SUBMIT_JOB_LOW_BG, LOW, Delivery.HANDLE),
    Packet.SUBMIT_JOB_EPOCH: clients.on_submit_epoch,
    Packet.SUBMIT_REDUCE_JOB: clients.on_submit_reduce,
    Packet.SUBMIT_REDUCE_JOB_BACKGROUND: clients.on_submit_reduce_background,
    Packet.GRAB_JOB_ALL: workers.on_grab_job_all,
    Packet.GET_STATUS_UNIQUE: clients.on_get_status_unique,
    Packet.SUBMIT_JOB_OPTIONS: control.on_submit_options,
    Packet.CONTROL: control.on_control,
    Packet.WATCH: extensions.on_watch,
    Packet.WORK_PROGRESS: extensions.on_work_progress,
    Packet.CREDIT: extensions.on_credit,
    Packet.RETRY_LATER: extensions.on_retry_later,
    Packet.HAND_BACK: extensions.on_hand_back,
}
