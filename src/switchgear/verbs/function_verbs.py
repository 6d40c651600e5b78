"""Verbs about functions: their queues, limits and keys."""

from __future__ import annotations

from typing import Final

from switchgear.partitions import MOST_SHARDS, PARTITIONS
from switchgear.verbs import answers, live_answers
from switchgear.verbs.access import WORKERS, Role
from switchgear.verbs.kinds import Boolean, PlainText, StartRate, Whole
from switchgear.verbs.operator_verb import Argument, Keeps, OperatorVerb, Reach
from switchgear.verbs.permitted_values import MOST_JOBS
from switchgear.verbs.shared_arguments import FUNCTION_NAME, OWNER

__all__ = ["FUNCTION_VERBS"]

FUNCTION_VERBS: Final = (
    OperatorVerb(
        "functions",
        "List functions with their queues and workers.",
        Role.READ,
        list[answers.FunctionAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="functions",
        library="App.functions",
        text_commands=("status", "prioritystatus"),
    ),
    OperatorVerb(
        "times",
        "Show how long the jobs of a function wait and run.",
        Role.READ,
        live_answers.TimesAnswer,
        (FUNCTION_NAME,),
        reach=Reach.FUNCTION,
        command="(GET /v1/functions/{function}/times over HTTP)",
        library="(for programs that watch a server; over HTTP)",
    ),
    OperatorVerb(
        "keys",
        "List the keys of a function with limits by key, those with most ready jobs first.",
        Role.READ,
        live_answers.KeysAnswer,
        (
            FUNCTION_NAME,
            Argument("limit", Whole(1, MOST_JOBS, clamped=True), "The maximum number of keys.", default=100),
        ),
        is_long=True,
        reach=Reach.FUNCTION,
        command="(GET /v1/functions/{function}/keys over HTTP)",
        library="(for programs that watch a server; over HTTP)",
    ),
    OperatorVerb(
        "pause",
        "Stop starting jobs of a function.",
        Role.OPERATE,
        answers.PauseAnswer,
        (FUNCTION_NAME,),
        Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="pause",
        library="App.pause",
    ),
    OperatorVerb(
        "resume",
        "Start jobs of a paused function again.",
        Role.OPERATE,
        answers.PauseAnswer,
        (FUNCTION_NAME,),
        Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="resume",
        library="App.resume",
    ),
    OperatorVerb(
        "limit",
        "Set how many jobs of a function may run, and how often one may start; without limits, show them.",
        Role.OPERATE,
        answers.LimitAnswer,
        (
            FUNCTION_NAME,
            Argument("concurrency", Whole(), "Most jobs that run at once; 0: any number.", unit="jobs", metavar="N"),
            Argument(
                "rate",
                StartRate(),
                "Most starts in a time, such as 10/s or 100/h; none: any.",
                unit="starts, seconds",
                metavar="N/TIME",
            ),
            Argument(
                "key_concurrency", Whole(), "Most jobs of each key that run at once; 0: any.", unit="jobs", metavar="N"
            ),
            Argument(
                "key_rate",
                StartRate(),
                "Most starts of each key in a time.",
                unit="starts, seconds",
                metavar="N/TIME",
            ),
            Argument(
                "fair",
                Boolean(),
                "Serve keys in turn, or jobs in the order of their arrival.",
                option="--fair/--no-fair",
            ),
            OWNER,
        ),
        Keeps.CHANGE,
        also=WORKERS,
        reach=Reach.FUNCTION,
        command="limit",
        library="App.limit",
    ),
    OperatorVerb(
        "place",
        "Put a function at the server of another one, if several own functions; without options, show where it is.",
        Role.OPERATE,
        answers.PlaceAnswer,
        (
            FUNCTION_NAME,
            Argument(
                "beside",
                PlainText(),
                "In the partition of this function, so that both have the same owner.",
                metavar="FUNCTION",
            ),
            Argument("partition", Whole(0, PARTITIONS - 1), "In the partition with this number.", metavar="N"),
            Argument("by_name", Boolean(), "In the partition that follows from its name, as before it was placed."),
            Argument(
                "shards",
                Whole(1, MOST_SHARDS),
                "Divide it into so many functions, each with an owner, while it has no jobs; 1: unite them.",
                metavar="N",
            ),
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.FUNCTION,
        command="place",
        library="App.place",
    ),
    OperatorVerb(
        "queue_limits",
        "Set how many jobs of a function may be queued, by priority.",
        Role.OPERATE,
        None,
        keeps=Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="(gearadmin and other clients of the text protocol)",
        library="(gearadmin and other clients of the text protocol)",
        text_commands=("maxqueue",),
    ),
    OperatorVerb(
        "create_function",
        "Let there be a function without jobs and workers.",
        Role.OPERATE,
        None,
        reach=Reach.FUNCTION,
        command="(a function appears with its first job or worker)",
        library="(a function appears with its first job or worker)",
        text_commands=("create",),
    ),
    OperatorVerb(
        "drop_function",
        "Forget a function that has no jobs and no workers.",
        Role.OPERATE,
        None,
        keeps=Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="(the server forgets unused functions when it needs room)",
        library="(the server forgets unused functions when it needs room)",
        text_commands=("drop",),
    ),
)
