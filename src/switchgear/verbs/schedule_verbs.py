"""Verbs about schedules, and what apps declare."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from switchgear.verbs import answers
from switchgear.verbs.access import WORKERS, Role
from switchgear.verbs.kinds import Boolean, JsonObject, NameList, Number, PayloadText, PlainText, Word
from switchgear.verbs.operator_verb import Argument, Keeps, OperatorVerb, Reach
from switchgear.verbs.permitted_values import CATCH_UP_NAMES, LONGEST_INTERVAL_SECONDS, MOST_HANDLES, MOST_NAME_BYTES
from switchgear.verbs.shared_arguments import OWNER, SCHEDULE_NAME

__all__ = ["SCHEDULE_VERBS"]

SCHEDULE_VERBS: Final = (
    OperatorVerb(
        "schedule",
        "Add a schedule, or change the one of that name.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (
            SCHEDULE_NAME,
            Argument("function", PlainText(MOST_NAME_BYTES), "The function of its jobs.", required=True),
            Argument("payload", PayloadText(), "What each job carries.", default=b""),
            Argument("cron", PlainText(), "When: a cron expression.", default="", metavar="EXPRESSION"),
            Argument(
                "every_seconds",
                Number(LONGEST_INTERVAL_SECONDS),
                "When: an interval in seconds, counted from the epoch.",
                unit="seconds",
                default=0,
                option="--every",
                metavar="SECONDS",
            ),
            Argument(
                "timezone",
                PlainText(),
                "By which clocks a cron expression goes. Default: UTC.",
                default="",
                metavar="ZONE",
            ),
            Argument(
                "catch_up",
                Word(CATCH_UP_NAMES),
                "Which of the ticks that were missed are made up for; of all, the last 1,000.",
                default="latest",
            ),
            Argument("overlap", Boolean(), "Make a job even while the last one is unfinished.", default=False),
            Argument("options", JsonObject(), "The options of each job, as of a single job."),
            OWNER,
        ),
        Keeps.CHANGE,
        also=WORKERS,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule add",
        library="App.declare",
    ),
    OperatorVerb(
        "declare",
        "Remove the schedules and limits that an app has declared earlier and declares no more, or only name them.",
        Role.OPERATE,
        answers.DeclareAnswer,
        (
            replace(OWNER, required=True),
            Argument("schedules", NameList(MOST_HANDLES), "The schedules that it declares now.", required=True),
            Argument("functions", NameList(MOST_HANDLES), "The functions that it declares limits of.", required=True),
            Argument("remove", Boolean(), "Remove them, or only name them.", default=True),
        ),
        Keeps.CHANGE,
        is_long=True,
        also=WORKERS,
        reach=Reach.ALL,
        command="(workers do it when they start)",
        library="App.declare",
    ),
    OperatorVerb(
        "schedules",
        "List the jobs that the server makes by itself.",
        Role.READ,
        list[answers.ScheduleAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="schedules",
        library="AppSchedules.list",
    ),
    OperatorVerb(
        "unschedule",
        "Remove a schedule; the jobs that it has made stay.",
        Role.OPERATE,
        answers.UnscheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        reach=Reach.SCHEDULE,
        command="schedule remove",
        library="AppSchedules.remove",
    ),
    OperatorVerb(
        "pause_schedule",
        "Let the ticks of a schedule pass without a job.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule pause",
        library="AppSchedules.pause",
    ),
    OperatorVerb(
        "resume_schedule",
        "Go on with the next tick of a paused schedule.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule resume",
        library="AppSchedules.resume",
    ),
    OperatorVerb(
        "run_schedule",
        "Make a job of a schedule at once, apart from its ticks.",
        Role.OPERATE,
        answers.RunScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.NEW_JOB,
        reach=Reach.SCHEDULE,
        command="schedule run",
        library="AppSchedules.run",
    ),
)
