"""The settings of the engine, the log and access control: `engine.*`, `log.*`, `access.*`."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.config.setting import Checked, setting
from switchgear.config.setting_types import (
    Choice,
    FilePath,
    PythonName,
    WholeNumber,
)

__all__ = ["AccessConfig", "EngineConfig", "LogConfig"]


@dataclass(frozen=True)
class EngineConfig(Checked):
    """Settings of the scheduling engine."""

    attempts: int = setting(
        3,
        WholeNumber(0, 2**31 - 1),
        "The maximum number of attempts of a job whose worker is lost or times out; 0: no limit. A job can have its"
        " own limit.",
        "A job that kills its worker would otherwise kill all of them, one after the other.",
        reloadable=True,
    )
    wakeups: int = setting(
        1,
        WholeNumber(0, 2**31 - 1),
        "How many sleeping workers are woken for one new job; 0: all that can run it.",
        "One job needs one worker; the others would find no job.",
        reloadable=True,
    )
    wake_policy: str = setting(
        "",
        PythonName(empty=True),
        "Your own Python function, as MODULE:FUNCTION, that chooses which workers are woken for a job or given it; see"
        " docs/protocols/wmp.md. Empty: the one that has slept longest, and as many as `engine.wakeups` says.",
        "The worker that has been idle longest is a fair choice if workers are alike.",
    )
    function_order: str = setting(
        "fair",
        Choice("fair", "registration", "round-robin"),
        "Which function of a worker is served next. fair: the highest priority over all its functions, and"
        " functions take turns. registration: the function it registered last, as long as it has jobs"
        " (gearmand's order). round-robin: functions take turns, priority counts within each (gearmand -R).",
        "No function starves, and high priority means high priority.",
    )


@dataclass(frozen=True)
class LogConfig(Checked):
    """Settings of the server's log."""

    level: str = setting(
        "info",
        Choice("debug", "info", "warning", "error", "critical"),
        "The lowest level of messages that are logged.",
        "info shows starts, stops, lost workers and refused peers, but nothing for each job.",
        reloadable=True,
        flag="--log-level",
    )
    file: str = setting(
        "",
        FilePath(empty=True),
        "The file to log to; empty: standard error. SIGHUP reopens it, for log rotation.",
        "Service managers and containers collect standard error.",
        reloadable=True,
        flag="--log-file",
    )
    format: str = setting(
        "text",
        Choice("text", "json"),
        "text for people, json (one object per line) for programs.",
        "People read it first.",
        flag="--log-format",
    )


@dataclass(frozen=True)
class AccessConfig(Checked):
    """Settings of access control."""

    file: str = setting(
        "",
        FilePath(empty=True),
        "The access file: identities with their roles, functions, and hashed tokens, certificates or CURVE keys;"
        " `switchgear access` writes it. It is read again on SIGHUP. Without it, every peer that can connect may do"
        " everything.",
        "A machine with one user needs no access control.",
        flag="--access-file",
    )
