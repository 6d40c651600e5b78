"""The table of the protocol's verbs, and what makes a session of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.model import HIGH, LOW, NORMAL, Delivery
from switchgear.protocols.gearman import clients, control, extensions, workers
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession

__all__ = ["ON_REQUEST"]

ON_REQUEST: Final[dict[int, Callable[[GearmanSession, bytes], None]]] = {
    Packet.CAN_DO: workers.on_can_do,
    Packet.CANT_DO: workers.on_cant_do,
    Packet.RESET_ABILITIES: workers.on_reset_abilities,
    Packet.PRE_SLEEP: workers.on_pre_sleep,
    Packet.SUBMIT_JOB: clients.submitter(Packet.SUBMIT_JOB, NORMAL, Delivery.WAIT),
    Packet.GRAB_JOB: workers.on_grab_job,
    Packet.WORK_STATUS: workers.on_work_status,
    Packet.WORK_COMPLETE: workers.on_work_complete,
    Packet.WORK_FAIL: workers.on_work_fail,
    Packet.GET_STATUS: clients.on_get_status,
    Packet.ECHO_REQ: clients.on_echo,
    Packet.SUBMIT_JOB_BG: clients.submitter(Packet.SUBMIT_JOB_BG, NORMAL, Delivery.HANDLE),
    Packet.SUBMIT_JOB_HIGH: clients.submitter(Packet.SUBMIT_JOB_HIGH, HIGH, Delivery.WAIT),
    Packet.SET_CLIENT_ID: workers.on_set_client_id,
    Packet.CAN_DO_TIMEOUT: workers.on_can_do_timeout,
    Packet.WORK_EXCEPTION: workers.on_work_exception,
    Packet.OPTION_REQ: clients.on_option,
    Packet.WORK_DATA: workers.on_work_data,
    Packet.WORK_WARNING: workers.on_work_warning,
    Packet.GRAB_JOB_UNIQ: workers.on_grab_job_uniq,
    Packet.SUBMIT_JOB_HIGH_BG: clients.submitter(Packet.SUBMIT_JOB_HIGH_BG, HIGH, Delivery.HANDLE),
    Packet.SUBMIT_JOB_LOW: clients.submitter(Packet.SUBMIT_JOB_LOW, LOW, Delivery.WAIT),
    Packet.SUBMIT_JOB_LOW_BG: clients.submitter(Packet.SUBMIT_JOB_LOW_BG, LOW, Delivery.HANDLE),
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
