"""The packets of the Gearman protocol: their numbers, how many arguments each has, and the error codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["ARGUMENTS", "BEFORE_PAYLOAD", "EXTENSIONS", "NOT_REQUESTS", "Packet"]


class Packet(IntEnum):
    """Packet types by number. From 1000 on they are extensions of this server."""

    CAN_DO = 1
    CANT_DO = 2
    RESET_ABILITIES = 3
    PRE_SLEEP = 4
    UNUSED = 5
    NOOP = 6
    SUBMIT_JOB = 7
    JOB_CREATED = 8
    GRAB_JOB = 9
    NO_JOB = 10
    JOB_ASSIGN = 11
    WORK_STATUS = 12
    WORK_COMPLETE = 13
    WORK_FAIL = 14
    GET_STATUS = 15
    ECHO_REQ = 16
    ECHO_RES = 17
    SUBMIT_JOB_BG = 18
    ERROR = 19
    STATUS_RES = 20
    SUBMIT_JOB_HIGH = 21
    SET_CLIENT_ID = 22
    CAN_DO_TIMEOUT = 23
    ALL_YOURS = 24
    WORK_EXCEPTION = 25
    OPTION_REQ = 26
    OPTION_RES = 27
    WORK_DATA = 28
    WORK_WARNING = 29
    GRAB_JOB_UNIQ = 30
    JOB_ASSIGN_UNIQ = 31
    SUBMIT_JOB_HIGH_BG = 32
    SUBMIT_JOB_LOW = 33
    SUBMIT_JOB_LOW_BG = 34
    SUBMIT_JOB_SCHED = 35
    SUBMIT_JOB_EPOCH = 36
    SUBMIT_REDUCE_JOB = 37
    SUBMIT_REDUCE_JOB_BACKGROUND = 38
    GRAB_JOB_ALL = 39
    JOB_ASSIGN_ALL = 40
    GET_STATUS_UNIQUE = 41
    STATUS_RES_UNIQUE = 42

    SUBMIT_JOB_OPTIONS = 1000
    CONTROL = 1001
    CONTROL_RES = 1002
    WATCH = 1003
    WATCH_RES = 1004
    JOB_ENDED = 1005
    WORK_PROGRESS = 1006
    CREDIT = 1007
    JOB_PUSH = 1008
    REVOKE = 1009
    RETRY_LATER = 1010
    HAND_BACK = 1011
    WORKER_TAGS = 1012
    WORKER_RESOURCES = 1013
    JOB_PUSH_TRACED = 1014
    WORKER_CONTROL = 1015
    WORKER_STATUS = 1016
    RESUME_JOB = 1017
    RESUME_RES = 1018
    AUTHENTICATE = 1020
    AUTHENTICATED = 1021
    GRAPH_BEGIN = 1030
    GRAPH_IDS = 1031
    GRAPH_PART = 1032
    GRAPH_COMMIT = 1033
    GRAPH_CREATED = 1034


EXTENSIONS: Final = frozenset(packet for packet in Packet if packet >= Packet.SUBMIT_JOB_OPTIONS)

# Packets that only a server sends, and reserved types that were never implemented: errors as requests.
NOT_REQUESTS: Final = frozenset(
    {
        Packet.UNUSED,
        Packet.NOOP,
        Packet.JOB_CREATED,
        Packet.NO_JOB,
        Packet.JOB_ASSIGN,
        Packet.ECHO_RES,
        Packet.ERROR,
        Packet.STATUS_RES,
        Packet.ALL_YOURS,
        Packet.OPTION_RES,
        Packet.JOB_ASSIGN_UNIQ,
        Packet.SUBMIT_JOB_SCHED,
        Packet.JOB_ASSIGN_ALL,
        Packet.STATUS_RES_UNIQUE,
        Packet.CONTROL_RES,
        Packet.WATCH_RES,
        Packet.JOB_ENDED,
        Packet.JOB_PUSH,
        Packet.JOB_PUSH_TRACED,
        Packet.REVOKE,
        Packet.WORKER_CONTROL,
        Packet.RESUME_RES,
        Packet.AUTHENTICATED,
        Packet.GRAPH_IDS,
        Packet.GRAPH_CREATED,
    }
)

# How many NUL-separated arguments the body of a request has. The last one may contain NULs.
ARGUMENTS: Final[dict[Packet, int]] = {
    Packet.CAN_DO: 1,
    Packet.CANT_DO: 1,
    Packet.RESET_ABILITIES: 0,
    Packet.PRE_SLEEP: 0,
    Packet.SUBMIT_JOB: 3,
    Packet.GRAB_JOB: 0,
    Packet.WORK_STATUS: 3,
    Packet.WORK_COMPLETE: 2,
    Packet.WORK_FAIL: 1,
    Packet.GET_STATUS: 1,
    Packet.ECHO_REQ: 1,
    Packet.SUBMIT_JOB_BG: 3,
    Packet.SUBMIT_JOB_HIGH: 3,
    Packet.SET_CLIENT_ID: 1,
    Packet.CAN_DO_TIMEOUT: 2,
    Packet.WORK_EXCEPTION: 2,
    Packet.OPTION_REQ: 1,
    Packet.WORK_DATA: 2,
    Packet.WORK_WARNING: 2,
    Packet.GRAB_JOB_UNIQ: 0,
    Packet.SUBMIT_JOB_HIGH_BG: 3,
    Packet.SUBMIT_JOB_LOW: 3,
    Packet.SUBMIT_JOB_LOW_BG: 3,
    Packet.SUBMIT_JOB_EPOCH: 4,
    Packet.SUBMIT_REDUCE_JOB: 5,
    Packet.SUBMIT_REDUCE_JOB_BACKGROUND: 5,
    Packet.GRAB_JOB_ALL: 0,
    Packet.GET_STATUS_UNIQUE: 1,
    Packet.SUBMIT_JOB_OPTIONS: 4,
    Packet.CONTROL: 2,
    Packet.WATCH: 1,
    Packet.WORK_PROGRESS: 4,
    Packet.CREDIT: 2,
    Packet.RETRY_LATER: 4,
    Packet.HAND_BACK: 1,
    Packet.WORKER_TAGS: 1,
    Packet.WORKER_RESOURCES: 1,
    Packet.WORKER_STATUS: 2,
    Packet.RESUME_JOB: 2,
    Packet.AUTHENTICATE: 1,
    Packet.GRAPH_BEGIN: 1,
    Packet.GRAPH_PART: 2,
    Packet.GRAPH_COMMIT: 1,
}

# The requests that carry a payload, a result or other data as their last argument, and how many precede it.
BEFORE_PAYLOAD: Final[dict[int, int]] = {
    int(kind): ARGUMENTS[kind] - 1
    for kind in (
        Packet.SUBMIT_JOB,
        Packet.SUBMIT_JOB_BG,
        Packet.SUBMIT_JOB_HIGH,
        Packet.SUBMIT_JOB_HIGH_BG,
        Packet.SUBMIT_JOB_LOW,
        Packet.SUBMIT_JOB_LOW_BG,
        Packet.SUBMIT_JOB_EPOCH,
        Packet.SUBMIT_REDUCE_JOB,
        Packet.SUBMIT_REDUCE_JOB_BACKGROUND,
        Packet.SUBMIT_JOB_OPTIONS,
        Packet.WORK_COMPLETE,
        Packet.WORK_DATA,
        Packet.WORK_WARNING,
        Packet.WORK_EXCEPTION,
        Packet.ECHO_REQ,
        Packet.GRAPH_PART,
    )
}
