"""Dispatches the packets of a Gearman connection: the table of packet handlers, and the loop that calls them.

The handlers of the packets that every job needs are called directly and not through the table: compiled, that is a call
of a C function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import HIGH, LOW, NORMAL, Delivery
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman import (
    client_packets,
    graph_packets,
    packet_access,
    submit_and_control,
    watch_and_credit,
    worker_packets,
)
from switchgear.protocols.gearman.client_packets import submit
from switchgear.protocols.gearman.codec import LONG, LONG_START, TEXT
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.packet_access import check_packet
from switchgear.protocols.gearman.session import GearmanSession
from switchgear.protocols.gearman.watch_and_credit import on_credit
from switchgear.protocols.gearman.worker_packets import on_grab_job, on_pre_sleep, on_work_complete

__all__ = ["ON_REQUEST", "handle_messages"]

SUBMIT_JOB: Final = int(Packet.SUBMIT_JOB)
SUBMIT_JOB_BG: Final = int(Packet.SUBMIT_JOB_BG)
GRAB_JOB: Final = int(Packet.GRAB_JOB)
WORK_COMPLETE: Final = int(Packet.WORK_COMPLETE)
PRE_SLEEP: Final = int(Packet.PRE_SLEEP)
CREDIT: Final = int(Packet.CREDIT)
# Handlers that may take long; a status by unique key searches every function.
SLOW_KINDS: Final = frozenset({int(Packet.CONTROL), TEXT, int(Packet.GET_STATUS_UNIQUE)})
WAIT: Final = int(Delivery.WAIT)
HANDLE: Final = int(Delivery.HANDLE)

# An operator verb takes up to a millisecond; after this many of them other peers are served.
COMMANDS_PER_TURN: Final = 10


def handle_messages(session: GearmanSession, messages: list[Message]) -> None:
    """Handle requests in order, as long as the peer reads the answers; the rest is deferred."""
    long_bytes = session.setup.long_bytes
    memory = session.engine.memory
    commands = 0
    for index, (kind, body) in enumerate(messages):
        if session.long_bytes > long_bytes or (memory.answer_bytes and memory.answers_must_wait):
            session.deferred = messages[index:]
            return
        try:
            if session.is_guarded:
                check_packet(session, kind, body)
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
                if kind in SLOW_KINDS:
                    commands += 1
                    if commands == COMMANDS_PER_TURN:
                        session.deferred = messages[index + 1 :]
                        return
        except (PeerError, Refused) as error:
            session.answer_error(error)
        if session.operation is not None:  # it waits for the store, or takes many turns
            session.deferred = messages[index + 1 :]
            return


def handle_by_table(session: GearmanSession, kind: int, body: bytes) -> None:
    handler = ON_REQUEST.get(kind)
    if handler is not None:
        handler(session, body)
    elif kind == LONG_START:
        session.long_start = body
    elif kind <= LONG:
        arguments = session.long_start.split(b"\0")
        arguments[-1] = body
        ON_LONG_REQUEST[LONG - kind](session, arguments)
    else:
        session.not_a_request(kind, body)


def submitter(kind: Packet, priority: int, delivery: Delivery) -> Callable[[GearmanSession, bytes], None]:
    """The handler of one of the plain submit packets."""

    def on_submit(session: GearmanSession, body: bytes) -> None:
        submit(session, kind, body, priority, delivery)

    return on_submit


ON_REQUEST: Final[dict[int, Callable[[GearmanSession, bytes], None]]] = {
    Packet.CAN_DO: worker_packets.on_can_do,
    Packet.CANT_DO: worker_packets.on_cant_do,
    Packet.RESET_ABILITIES: worker_packets.on_reset_abilities,
    Packet.PRE_SLEEP: worker_packets.on_pre_sleep,
    Packet.SUBMIT_JOB: submitter(Packet.SUBMIT_JOB, NORMAL, Delivery.WAIT),
    Packet.GRAB_JOB: worker_packets.on_grab_job,
    Packet.WORK_STATUS: worker_packets.on_work_status,
    Packet.WORK_COMPLETE: worker_packets.on_work_complete,
    Packet.WORK_FAIL: worker_packets.on_work_fail,
    Packet.GET_STATUS: client_packets.on_get_status,
    Packet.ECHO_REQ: client_packets.on_echo,
    Packet.SUBMIT_JOB_BG: submitter(Packet.SUBMIT_JOB_BG, NORMAL, Delivery.HANDLE),
    Packet.SUBMIT_JOB_HIGH: submitter(Packet.SUBMIT_JOB_HIGH, HIGH, Delivery.WAIT),
    Packet.SET_CLIENT_ID: worker_packets.on_set_client_id,
    Packet.CAN_DO_TIMEOUT: worker_packets.on_can_do_timeout,
    Packet.WORK_EXCEPTION: worker_packets.on_work_exception,
    Packet.OPTION_REQ: client_packets.on_option,
    Packet.WORK_DATA: worker_packets.on_work_data,
    Packet.WORK_WARNING: worker_packets.on_work_warning,
    Packet.GRAB_JOB_UNIQ: worker_packets.on_grab_job_uniq,
    Packet.SUBMIT_JOB_HIGH_BG: submitter(Packet.SUBMIT_JOB_HIGH_BG, HIGH, Delivery.HANDLE),
    Packet.SUBMIT_JOB_LOW: submitter(Packet.SUBMIT_JOB_LOW, LOW, Delivery.WAIT),
    Packet.SUBMIT_JOB_LOW_BG: submitter(Packet.SUBMIT_JOB_LOW_BG, LOW, Delivery.HANDLE),
    Packet.SUBMIT_JOB_EPOCH: client_packets.on_submit_epoch,
    Packet.SUBMIT_REDUCE_JOB: client_packets.on_submit_reduce,
    Packet.SUBMIT_REDUCE_JOB_BACKGROUND: client_packets.on_submit_reduce_background,
    Packet.GRAB_JOB_ALL: worker_packets.on_grab_job_all,
    Packet.GET_STATUS_UNIQUE: client_packets.on_get_status_unique,
    Packet.SUBMIT_JOB_OPTIONS: submit_and_control.on_submit_options,
    Packet.CONTROL: submit_and_control.on_control,
    Packet.WATCH: watch_and_credit.on_watch,
    Packet.WORK_PROGRESS: watch_and_credit.on_work_progress,
    Packet.CREDIT: watch_and_credit.on_credit,
    Packet.RETRY_LATER: watch_and_credit.on_retry_later,
    Packet.HAND_BACK: watch_and_credit.on_hand_back,
    Packet.WORKER_TAGS: watch_and_credit.on_worker_tags,
    Packet.WORKER_RESOURCES: watch_and_credit.on_worker_resources,
    Packet.WORKER_STATUS: watch_and_credit.on_worker_status,
    Packet.RESUME_JOB: watch_and_credit.on_resume_job,
    Packet.AUTHENTICATE: packet_access.on_authenticate,
    Packet.GRAPH_BEGIN: graph_packets.on_graph_begin,
    Packet.GRAPH_PART: graph_packets.on_graph_part,
    Packet.GRAPH_COMMIT: graph_packets.on_graph_commit,
}


def long_submitter(priority: int, delivery: Delivery) -> Callable[[GearmanSession, list[bytes]], None]:
    """The handler of a long packet of one of the plain submit types."""

    def on_long_submit(session: GearmanSession, arguments: list[bytes]) -> None:
        client_packets.submit_long(session, arguments, priority, delivery)

    return on_long_submit


# The handlers of long packets, which get their arguments.
ON_LONG_REQUEST: Final[dict[int, Callable[[GearmanSession, list[bytes]], None]]] = {
    Packet.SUBMIT_JOB: long_submitter(NORMAL, Delivery.WAIT),
    Packet.SUBMIT_JOB_BG: long_submitter(NORMAL, Delivery.HANDLE),
    Packet.SUBMIT_JOB_HIGH: long_submitter(HIGH, Delivery.WAIT),
    Packet.SUBMIT_JOB_HIGH_BG: long_submitter(HIGH, Delivery.HANDLE),
    Packet.SUBMIT_JOB_LOW: long_submitter(LOW, Delivery.WAIT),
    Packet.SUBMIT_JOB_LOW_BG: long_submitter(LOW, Delivery.HANDLE),
    Packet.SUBMIT_JOB_EPOCH: client_packets.submit_epoch,
    Packet.SUBMIT_REDUCE_JOB: lambda session, arguments: client_packets.submit_reduce(
        session, arguments, Delivery.WAIT
    ),
    Packet.SUBMIT_REDUCE_JOB_BACKGROUND: lambda session, arguments: client_packets.submit_reduce(
        session, arguments, Delivery.HANDLE
    ),
    Packet.SUBMIT_JOB_OPTIONS: submit_and_control.submit_options,
    Packet.WORK_COMPLETE: worker_packets.complete_long,
    Packet.WORK_DATA: worker_packets.work_data,
    Packet.WORK_WARNING: worker_packets.work_warning,
    Packet.WORK_EXCEPTION: worker_packets.work_exception,
    Packet.ECHO_REQ: client_packets.on_long_echo,
    Packet.GRAPH_PART: graph_packets.take_part,
}
