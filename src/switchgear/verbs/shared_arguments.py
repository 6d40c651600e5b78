"""Arguments that several verbs have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from switchgear.verbs.kinds import Boolean, Handle, Number, PlainText, Whole, WordList
from switchgear.verbs.operator_verb import Argument
from switchgear.verbs.permitted_values import LATEST_SECONDS, MOST_JOBS, MOST_NAME_BYTES, MOST_TEXT_BYTES, STATE_NAMES

__all__ = [
    "BEFORE_ID",
    "BULK_ID",
    "CONTAINS",
    "DEAD",
    "ERROR",
    "FUNCTION",
    "FUNCTION_NAME",
    "HANDLE_OR_SELECTION",
    "KEY",
    "LIMIT",
    "NAME",
    "ONE_HANDLE",
    "OWNER",
    "SCHEDULE_NAME",
    "SINCE",
    "STATES",
    "UNIQUE",
    "UNTIL",
]

FUNCTION_NAME: Final = Argument("function", PlainText(), "The name of a function.", required=True)
ONE_HANDLE: Final = Argument("handle", Handle(), "The handle of a job, or its number.", required=True)
SCHEDULE_NAME: Final = Argument("name", PlainText(MOST_NAME_BYTES), "The name of a schedule.", required=True)

FUNCTION: Final = Argument("function", PlainText(), "Only jobs of this function.", metavar="NAME")
STATES: Final = Argument(
    "states", WordList(STATE_NAMES), "Only jobs in this state; may be given several times.", option="--state"
)
UNIQUE: Final = Argument("unique", PlainText(), "Only jobs with this unique key.", metavar="KEY")
NAME: Final = Argument("name", PlainText(), "Only the job with this name.", metavar="NAME")
DEAD: Final = Argument("dead", Boolean(), "Only jobs that failed because their attempts were spent.", default=False)
ERROR: Final = Argument("error", PlainText(), "Only jobs whose error has this text in it.", metavar="TEXT")
SINCE: Final = Argument(
    "since",
    Number(LATEST_SECONDS),
    "Only jobs submitted since then: 2030-01-31T18:00, or seconds since the epoch.",
    unit="seconds since the epoch",
    default=0,
    metavar="WHEN",
)
UNTIL: Final = Argument(
    "until",
    Number(LATEST_SECONDS),
    "Only jobs submitted before then.",
    unit="seconds since the epoch",
    default=0,
    metavar="WHEN",
)
KEY: Final = Argument("key", PlainText(), "Only jobs with this key, for which limits may hold.", metavar="KEY")
CONTAINS: Final = Argument(
    "contains",
    PlainText(MOST_TEXT_BYTES),
    "Only jobs with this text in payload (of up to 64 KiB), name, unique key or error.",
    metavar="TEXT",
)
BEFORE_ID: Final = Argument(
    "before_id",
    Whole(),
    "Only jobs older than the one with this number.",
    default=0,
    option="--before",
    metavar="ID",
)
LIMIT: Final = Argument(
    "limit", Whole(1, MOST_JOBS, clamped=True), "The maximum number of jobs.", unit="jobs", default=100
)

OWNER: Final = Argument("owner", PlainText(MOST_NAME_BYTES), "The name of the app that declares it.")
BULK_ID: Final = Argument("id", PlainText(MOST_NAME_BYTES), "The id of a bulk action.")
HANDLE_OR_SELECTION: Final = replace(ONE_HANDLE, required=False)
