"""The roles that each Gearman packet needs, and the packet AUTHENTICATE, by which a peer identifies itself.

AUTHENTICATE   token                                      -> AUTHENTICATED identity; or ERROR AUTHENTICATION_FAILED

CONTROL packets and text commands have the roles of their operator verbs.
"""

from __future__ import annotations

from typing import Final

from switchgear.access.permissions import EVERYBODY
from switchgear.protocols.gearman.codec import LONG, LONG_START, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, first_argument
from switchgear.verbs.access import Role

__all__ = ["PACKET_ROLES", "check_packet", "on_authenticate"]

SUBMIT: Final = frozenset({Role.SUBMIT})
WORK: Final = frozenset({Role.WORK})
FOLLOW: Final = frozenset({Role.SUBMIT, Role.READ})  # a submitter follows its jobs by their handles

PACKET_ROLES: Final[dict[int, frozenset[Role]]] = {
    Packet.CAN_DO: WORK,
    Packet.CANT_DO: WORK,
    Packet.RESET_ABILITIES: WORK,
    Packet.PRE_SLEEP: WORK,
    Packet.SUBMIT_JOB: SUBMIT,
    Packet.GRAB_JOB: WORK,
    Packet.WORK_STATUS: WORK,
    Packet.WORK_COMPLETE: WORK,
    Packet.WORK_FAIL: WORK,
    Packet.GET_STATUS: FOLLOW,
    Packet.ECHO_REQ: EVERYBODY,
    Packet.SUBMIT_JOB_BG: SUBMIT,
    Packet.SUBMIT_JOB_HIGH: SUBMIT,
    Packet.SET_CLIENT_ID: EVERYBODY,
    Packet.CAN_DO_TIMEOUT: WORK,
    Packet.WORK_EXCEPTION: WORK,
    Packet.OPTION_REQ: EVERYBODY,
    Packet.WORK_DATA: WORK,
    Packet.WORK_WARNING: WORK,
    Packet.GRAB_JOB_UNIQ: WORK,
    Packet.SUBMIT_JOB_HIGH_BG: SUBMIT,
    Packet.SUBMIT_JOB_LOW: SUBMIT,
    Packet.SUBMIT_JOB_LOW_BG: SUBMIT,
    Packet.SUBMIT_JOB_EPOCH: SUBMIT,
    Packet.SUBMIT_REDUCE_JOB: SUBMIT,
    Packet.SUBMIT_REDUCE_JOB_BACKGROUND: SUBMIT,
    Packet.GRAB_JOB_ALL: WORK,
    Packet.GET_STATUS_UNIQUE: FOLLOW,
    Packet.SUBMIT_JOB_OPTIONS: SUBMIT,
    Packet.CONTROL: EVERYBODY,  # its verb has the roles
    Packet.WATCH: FOLLOW,
    Packet.WORK_PROGRESS: WORK,
    Packet.CREDIT: WORK,
    Packet.RETRY_LATER: WORK,
    Packet.HAND_BACK: WORK,
    Packet.WORKER_TAGS: WORK,
    Packet.WORKER_RESOURCES: WORK,
    Packet.WORKER_STATUS: WORK,
    Packet.RESUME_JOB: WORK,
    Packet.AUTHENTICATE: EVERYBODY,
    Packet.GRAPH_BEGIN: SUBMIT,
    Packet.GRAPH_PART: SUBMIT,
    Packet.GRAPH_COMMIT: SUBMIT,
}

GRAPHS: Final = (Packet.GRAPH_BEGIN, Packet.GRAPH_PART, Packet.GRAPH_COMMIT)  # `graph_packets` checks their functions
# Packets whose first argument is the name of a function; reports are about jobs of a worker's own functions.
NAMES_FUNCTION: Final = frozenset(
    {
        int(kind)
        for kind, roles in PACKET_ROLES.items()
        if (roles is SUBMIT and kind not in GRAPHS) or kind in (Packet.CAN_DO, Packet.CAN_DO_TIMEOUT)
    }
)
# Packets whose first argument is a handle.
NAMES_JOB: Final = frozenset({int(Packet.GET_STATUS), int(Packet.WATCH)})


def check_packet(session: GearmanSession, kind: int, body: bytes) -> None:
    """Check whether a peer that may not do everything may send this packet; raises Refused."""
    first = body
    if kind <= LONG:
        kind = LONG - kind
        first = session.long_start
    elif kind <= 0 or kind == LONG_START:
        return  # a line of text, whose verb has the roles, or only the start of a packet
    roles = PACKET_ROLES.get(kind)
    if roles is None:
        return  # not a request, which is answered with an error
    function: bytes | None = None
    if kind in NAMES_FUNCTION:
        function = first_argument(first)
    elif kind in NAMES_JOB:
        job = session.engine.look_at(session.job_id(first_argument(first)))
        if job is not None:
            function = job.function.told_name
    session.require(Packet(kind).name, roles, function)


def on_authenticate(session: GearmanSession, body: bytes) -> None:
    access = session.transport.access
    if access.is_open:  # nothing depends on who the peer is
        session.send(response(Packet.AUTHENTICATED, session.permissions.name.encode()))
        return
    permissions = access.by_token(first_argument(body))
    if permissions is None:
        session.context.count_authentication_failed(session)
        session.send_error("AUTHENTICATION_FAILED", "No identity has this token, or tokens are not accepted here")
        return
    session.identify(permissions)
    session.send(response(Packet.AUTHENTICATED, permissions.name.encode()))
