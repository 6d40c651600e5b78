"""Verbs about the server as a whole, its connections and workers, and what happens on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from switchgear.verbs import answers, live_answers
from switchgear.verbs.access import SUBMITTERS, Role
from switchgear.verbs.kinds import Boolean, Number, PlainText, Whole, Word, WordList
from switchgear.verbs.operator_verb import Argument, OperatorVerb, Reach
from switchgear.verbs.permitted_values import (
    LARGEST_PORT,
    LATEST_SECONDS,
    MOST_CONNECTIONS,
    MOST_STREAM_ROWS,
    SERIES_METRICS,
    WORKER_ACTIONS,
)
from switchgear.verbs.shared_arguments import BEFORE_ID, LIMIT, SINCE

__all__ = ["SERVER_VERBS", "STOPPING_VERBS"]

SERVER_VERBS: Final = (
    OperatorVerb(
        "server",
        "Show the state of the server, and what it holds in memory.",
        Role.READ,
        answers.ServerAnswer,
        reach=Reach.ALL,
        command="server",
        library="App.server",
        text_commands=("version", "getpid", "verbose"),
    ),
    OperatorVerb(
        "open_dashboard",
        "Say where the dashboard is; the server of an embedded directory opens it first.",
        Role.ADMIN,
        answers.DashboardAnswer,
        (
            Argument(
                "port",
                Whole(0, LARGEST_PORT),
                "The port on 127.0.0.1, if it is not open yet; 0 is 4740, or a free port if another program has that.",
                default=0,
            ),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(dashboard; it uses this verb for embedded directories)",
        library="(App.dashboard; it uses this verb for embedded directories)",
    ),
    OperatorVerb(
        "nodes",
        "List the servers that share the jobs in one PostgreSQL; none if the server is not one of several.",
        Role.READ,
        list[answers.NodeAnswer],
        reach=Reach.HERE,
        command="nodes",
        library="App.nodes",
    ),
    OperatorVerb(
        "overview",
        "Show jobs, rates, workers and alarms of the whole server.",
        Role.READ,
        live_answers.OverviewAnswer,
        is_long=True,
        reach=Reach.ALL,
        command="top",
        library="(App.server has the state of the server)",
    ),
    OperatorVerb(
        "flows",
        "Count jobs by the protocol they came by and the protocol of the workers that ran them.",
        Role.READ,
        live_answers.FlowsAnswer,
        reach=Reach.ALL,
        command="(GET /v1/flows over HTTP)",
        library="(for programs that watch a server; GET /v1/flows over HTTP)",
    ),
    OperatorVerb(
        "series",
        "Show figures of a function, or of all together, over time.",
        Role.READ,
        live_answers.SeriesAnswer,
        (
            Argument("function", PlainText(), "Only this function; `other` for those without series of their own."),
            Argument("metrics", WordList(SERIES_METRICS), "Which figures; default: all."),
            Argument(
                "since",
                Number(LATEST_SECONDS),
                "From this time on; default: an hour before the end.",
                unit="seconds since the epoch",
            ),
            Argument("until", Number(LATEST_SECONDS), "Up to this time; default: now.", unit="seconds since the epoch"),
            Argument("step", Whole(0, 3600), "10, 60, 600 or 3600; 0: what fits the time.", unit="seconds", default=0),
            Argument("names", Boolean(), "Also name the functions that have series of their own.", default=False),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/series over HTTP)",
        library="(for programs that watch a server; GET /v1/series over HTTP)",
    ),
    OperatorVerb(
        "stream",
        "Show recent attempts with their worker, start and end; recorded while a client requests them.",
        Role.READ,
        live_answers.StreamAnswer,
        (
            Argument(
                "since",
                Number(LATEST_SECONDS),
                "Only attempts that ended since then.",
                unit="seconds since the epoch",
                default=0,
            ),
            Argument("cursor", Whole(), "Only attempts after those of another answer: its `next`."),
            Argument(
                "limit",
                Whole(1, MOST_STREAM_ROWS, clamped=True),
                "The maximum number of attempts; of more, some are left out.",
                default=1000,
            ),
            Argument("seconds", Number(60, 1), "Go on recording for so long; default: 30 seconds.", unit="seconds"),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(GET /v1/stream over HTTP)",
        library="(for programs that watch a server; GET /v1/stream over HTTP)",
    ),
    OperatorVerb(
        "at",
        "Show the state of the server at an earlier time: figures of functions, and running jobs.",
        Role.READ,
        live_answers.PastAnswer,
        (Argument("t", Number(LATEST_SECONDS), "The time.", unit="seconds since the epoch", required=True),),
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/at over HTTP)",
        library="(for programs that watch a server; GET /v1/at over HTTP)",
    ),
    OperatorVerb(
        "runs",
        "Show which worker ran which job from when to when in an earlier time, from the job log.",
        Role.READ,
        live_answers.RunsAnswer,
        (
            Argument(
                "since", Number(LATEST_SECONDS), "The begin of the time.", unit="seconds since the epoch", required=True
            ),
            Argument(
                "until", Number(LATEST_SECONDS), "The end of the time.", unit="seconds since the epoch", required=True
            ),
            Argument(
                "limit",
                Whole(1, MOST_STREAM_ROWS, clamped=True),
                "About how many runs; of more, some are left out.",
                unit="runs",
                default=2000,
            ),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(switchgear log, which reads the database)",
        library="(for programs that watch a server; GET /v1/runs over HTTP)",
    ),
    OperatorVerb(
        "storage",
        "Show durations of commits, pending changes, and file sizes of the store.",
        Role.READ,
        live_answers.StorageAnswer,
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/storage over HTTP)",
        library="(for programs that watch a server; GET /v1/storage over HTTP)",
    ),
    OperatorVerb(
        "connections",
        "List the connections that use the most memory.",
        Role.READ,
        answers.ConnectionsAnswer,
        (
            Argument(
                "limit",
                Whole(1, MOST_CONNECTIONS, clamped=True),
                "The maximum number of connections.",
                unit="connections",
                default=100,
            ),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="server --connections",
        library="App.connections",
    ),
    OperatorVerb(
        "explain_server",
        "Show why submissions are refused, and which function and connection use the most memory if it is full.",
        Role.READ,
        answers.ServerExplanation,
        is_long=True,
        also=SUBMITTERS,
        reach=Reach.ALL,
        command="explain",
        library="App.explain_server",
    ),
    OperatorVerb(
        "workers",
        "List connected workers.",
        Role.READ,
        list[answers.WorkerAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="workers",
        library="App.workers",
        text_commands=("workers",),
    ),
    OperatorVerb(
        "control_workers",
        "Tell workers to report, to stop, to restart, to have another number of slots, or a text.",
        Role.OPERATE,
        answers.ControlWorkersAnswer,
        (
            Argument("action", Word(WORKER_ACTIONS), "What the workers are to do.", required=True),
            Argument(
                "workers",
                PlainText(256),
                "A name of workers, the first parts of names, a pattern, or an id.",
                default="*",
            ),
            Argument("slots", Whole(1, 10_000), "With resize: the number of slots.", unit="jobs", metavar="N"),
            Argument("text", PlainText(60_000), "With broadcast: the text.", metavar="TEXT"),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="control",
        library="App.control_workers",
    ),
    OperatorVerb(
        "audit",
        "List actions of operators and refusals, newest first.",
        Role.OPERATE,
        answers.AuditPage,
        (
            replace(SINCE, help="Only actions since then: 2030-01-31T18:00, or seconds since the epoch."),
            replace(BEFORE_ID, help="Only entries older than the one with this number."),
            replace(LIMIT, help="The maximum number of entries.", unit="entries"),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(switchgear log --audit, which reads the database)",
        library="(for programs that watch a server; GET /v1/audit over HTTP)",
    ),
)

STOPPING_VERBS: Final = (
    OperatorVerb(
        "shutdown",
        "Stop the server, at once or when the running jobs have ended.",
        Role.ADMIN,
        None,
        reach=Reach.HERE,
        command="(send the process SIGTERM, or use gearadmin --shutdown)",
        library="(a program does not stop the server of others)",
        text_commands=("shutdown",),
    ),
)
