"""Every verb at several nodes that own functions: whichever node is asked, the answer is about all of them.

`WALK` has a row for each verb of the table, which says how it is answered. A verb without a row fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.request import Request, urlopen

import pytest

from switchgear.errors import ServerRefused
from switchgear.verbs.table import VERBS
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


class Stage:
    """Three nodes. Functions are named by their owner; numbers keep tests apart."""

    def __init__(self, nodes: list[OwnerNode]) -> None:
        self.nodes = nodes
        self._number = 100

    def functions(self) -> list[str]:
        """A new function of each node."""
        self._number += 1
        return [function_of(node, self._number) for node in self.nodes]

    def ask(self, node: OwnerNode, verb: str, **arguments: Any) -> Any:
        """The answer of a node, which must be complete."""
        with node.client() as client:
            answer = client.control(verb, **arguments)
            assert client.incomplete is None
            return answer

    def ask_all(self, verb: str, **arguments: Any) -> list[Any]:
        return [self.ask(node, verb, **arguments) for node in self.nodes]

    def submit(self, function: str, count: int = 1, **options: Any) -> list[str]:
        """Jobs in the background, submitted at the last node."""
        with self.nodes[-1].client() as client:
            return [client.submit(function, b"payload", background=True, **options).handle for _ in range(count)]

    def states(self, handles: list[str]) -> list[str]:
        answers = [answer["states"] for answer in self.ask_all("states", handles=handles)]
        assert answers[0] == answers[1] == answers[2]
        return list(answers[0])

    def row(self, node: OwnerNode, function: str) -> Any:
        return next((row for row in self.ask(node, "functions") if row["name"] == function), None)


@pytest.fixture(scope="module")
def stage(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    place = tmp_path_factory.mktemp("verbs")
    url = postgres.new_url()
    nodes = [OwnerNode(name, url, place) for name in NAMES]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.end)
            node.start()
        for node in nodes:
            node.wait_until_it_answers()
        settled(nodes)
        yield Stage(nodes)


# --- how each verb is answered ---


def of_the_node_that_is_asked(verb: str, **arguments: Any) -> Callable[[Stage], None]:
    """The node answers alone, from what all nodes share or from what only it can know."""

    def check(stage: Stage) -> None:
        assert len(stage.ask_all(verb, **arguments)) == 3

    return check


def only_in_the_text_protocol(check: Callable[[Stage], None]) -> Callable[[Stage], None]:
    return check


def text(node: OwnerNode, line: str) -> list[str]:
    with node.client() as client:
        return client.admin(line)


def check_server(stage: Stage) -> None:
    stage.submit(stage.functions()[0])
    first, *others = stage.ask_all("server")
    assert first["nodes"] == ["ada", "bob", "cleo"]
    for other in others:
        assert other["jobs"] == first["jobs"] > 0
        assert other["functions"] == first["functions"]
        assert {listener["node"] for listener in other["listeners"]} == set(NAMES)
    assert len({each["pid"] for each in (first, *others)}) == 3


def check_overview(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.submit(function, 2)
    answers = stage.ask_all("overview")
    assert answers[0]["jobs"] == answers[1]["jobs"] == answers[2]["jobs"]
    assert answers[0]["jobs"]["ready"] >= 6
    assert answers[0]["functions"] == answers[1]["functions"] >= 3


def check_flows(stage: Stage) -> None:
    functions = stage.functions()
    with ExitStack() as stack:
        for function in functions:
            stack.enter_context(PlainWorker(stage.nodes[0], function))
            with stage.nodes[1].client() as client:
                client.submit(function, b"x").wait(20)
        done = [sum(flow["done"] for flow in answer["flows"]) for answer in stage.ask_all("flows")]
    assert done[0] == done[1] == done[2] >= 3


def check_series(stage: Stage) -> None:
    for answer in stage.ask_all("series", metrics=["ready"], names=True):
        assert answer["values"].keys() == {"ready"}
        assert len(answer["values"]["ready"]) == len(answer["times"])


def check_at(stage: Stage) -> None:
    (at, *_) = [answer["at"] for answer in stage.ask_all("overview")]
    assert len(stage.ask_all("at", t=at - 1)) == 3


def check_storage(stage: Stage) -> None:
    before = stage.ask(stage.nodes[0], "storage")["commits"]
    stage.submit(stage.functions()[1])
    assert stage.ask(stage.nodes[2], "storage")["commits"] > before


def check_connections(stage: Stage) -> None:
    with stage.nodes[2].client() as client:
        client.echo(b"x")
        answer = stage.ask(stage.nodes[0], "connections", limit=1000)
    assert {"ada", "cleo"} <= {row["node"] for row in answer["connections"]}
    assert answer["count"] == len(answer["connections"])


def check_explain_server(stage: Stage) -> None:
    for answer in stage.ask_all("explain_server"):
        assert [reason["word"] for reason in answer["reasons"]] == ["accepting"]


def check_workers(stage: Stage) -> None:
    functions = stage.functions()
    with PlainWorker(stage.nodes[1], functions[0]), PlainWorker(stage.nodes[2], functions[0]):
        for node in stage.nodes:
            eventually(partial(has_workers, stage, node, functions[0]), "both workers are listed with their nodes")
            eventually(partial(counts_workers, stage, node, functions[0]), "the function has both of them")


def counts_workers(stage: Stage, node: OwnerNode, function: str) -> bool:
    row = stage.row(node, function)
    return row is not None and row["workers"] == 2


def has_workers(stage: Stage, node: OwnerNode, function: str) -> bool:
    rows = [row for row in stage.ask(node, "workers") if function in row["functions"]]
    assert "node" not in {row["protocol"] for row in rows}
    return sorted(row["node"] for row in rows) == ["bob", "cleo"]


def check_control_workers(stage: Stage) -> None:
    function = stage.functions()[0]
    with PlainWorker(stage.nodes[1], function):
        eventually(
            lambda: any(function in row["functions"] for row in stage.ask(stage.nodes[0], "workers")), "a worker"
        )
        answer = stage.ask(stage.nodes[0], "control_workers", action="ping")
        assert "bob" in {row["node"] for row in answer["not_controllable"]}
        later = stage.ask(stage.nodes[2], "control_workers", action="ping")
        assert later["number"] > answer["number"]


def check_functions(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.submit(function, 2)
    for node in stage.nodes:
        rows = {row["name"]: row for row in stage.ask(node, "functions")}
        assert [rows[function]["node"] for function in functions] == list(NAMES)
        assert [rows[function]["ready"] for function in functions] == [2, 2, 2]


def check_times(stage: Stage) -> None:
    for function in stage.functions():
        stage.submit(function)
        answers = stage.ask_all("times", function=function)
        assert answers[0] == answers[1] == answers[2]


def check_keys(stage: Stage) -> None:
    for function in stage.functions():
        stage.ask(stage.nodes[0], "limit", function=function, key_concurrency=1)
        stage.submit(function, 3, key="tenant")
        assert [answer["keys"] for answer in stage.ask_all("keys", function=function)] == [
            [{"key": "tenant", "ready": 3, "running": 0}]
        ] * 3


def check_pause(stage: Stage) -> None:
    for function in stage.functions():
        for entry in stage.nodes:
            assert stage.ask(entry, "pause", function=function) == {"function": function, "paused": True}
            assert all(stage.row(node, function)["paused"] for node in stage.nodes)
            assert stage.ask(entry, "resume", function=function) == {"function": function, "paused": False}
            assert not any(stage.row(node, function)["paused"] for node in stage.nodes)


def check_limit(stage: Stage) -> None:
    for number, function in enumerate(stage.functions(), 1):
        for entry in stage.nodes:
            answer = stage.ask(entry, "limit", function=function, concurrency=number)
            assert answer["policy"]["concurrency"] == number
        assert [answer["policy"]["concurrency"] for answer in stage.ask_all("limit", function=function)] == [number] * 3


def check_place(stage: Stage) -> None:
    for owner, function in zip(stage.nodes, stage.functions(), strict=True):
        answers = stage.ask_all("place", function=function)
        assert [(answer["node"], answer["placed"]) for answer in answers] == [(owner.name, False)] * 3


def check_queue_limits(stage: Stage) -> None:
    for function in stage.functions():
        assert text(stage.nodes[0], f"maxqueue {function} 1") == ["OK"]
        assert [stage.row(node, function)["limits"] for node in stage.nodes] == [[1, 1, 1]] * 3
        stage.submit(function)
        with pytest.raises(ServerRefused):
            stage.submit(function)


def check_create_function(stage: Stage) -> None:
    for function in stage.functions():
        assert text(stage.nodes[1], f"create function {function}") == ["OK"]
        assert all(stage.row(node, function)["total"] == 0 for node in stage.nodes)


def check_drop_function(stage: Stage) -> None:
    for function in stage.functions():
        assert text(stage.nodes[1], f"create function {function}") == ["OK"]
        assert text(stage.nodes[0], f"drop function {function}") == ["OK"]
        for node in stage.nodes:
            assert function not in {row["name"] for row in stage.ask(node, "functions")}
    with pytest.raises(ServerRefused, match="not found"):
        text(stage.nodes[0], f"drop function {function}")


def check_jobs(stage: Stage) -> None:
    """Pages of a list that the jobs of all nodes are in, without gaps and repetitions."""
    functions = stage.functions()
    key = f"k{functions[0]}"
    handles = {handle for function in functions for handle in stage.submit(function, 5, key=key)}
    for node in stage.nodes:
        seen: list[str] = []
        before_id = 0
        while True:
            page = stage.ask(node, "jobs", key=key, states=["ready"], limit=4, before_id=before_id)
            assert len(page["jobs"]) <= 4
            seen += [job["handle"] for job in page["jobs"]]
            before_id = page["next_before_id"] or 0
            if not before_id:
                break
        assert sorted(seen) == sorted(handles)


def check_job(stage: Stage) -> None:
    for function in stage.functions():
        (handle,) = stage.submit(function, unique=f"u{function}")
        answers = stage.ask_all("job", handle=handle)
        assert answers[0] == answers[1] == answers[2]
        assert (answers[0]["state"], answers[0]["payload"]) == ("ready", "payload")
    with pytest.raises(ServerRefused, match="no such job"):
        stage.ask(stage.nodes[0], "job", handle=handle + "999999")


def check_errors(stage: Stage) -> None:
    answers = stage.ask_all("errors")
    assert answers[0]["groups_count"] == answers[1]["groups_count"]


def check_graph(stage: Stage) -> None:
    for function in stage.functions():
        (handle, _) = stage.submit(function, 2)
        assert [answer["jobs"] for answer in stage.ask_all("graph", function=function)] == [2] * 3
        assert [answer["jobs"] for answer in stage.ask_all("graph", handle=handle)] == [1] * 3


def check_states(stage: Stage) -> None:
    functions = stage.functions()
    handles = [handle for function in functions for handle in stage.submit(function)]
    assert stage.states([*handles, "H:x:1"]) == ["ready", "ready", "ready", "unknown"]
    with PlainWorker(stage.nodes[0], functions[1]):
        eventually(lambda: stage.ask(stage.nodes[2], "states", handles=handles[1:2])["states"] == ["done"], "its end")
    assert stage.states(handles) == ["ready", "done", "ready"]


def check_explain(stage: Stage) -> None:
    for function in stage.functions():
        (handle,) = stage.submit(function)
        words = [[reason["word"] for reason in answer["reasons"]] for answer in stage.ask_all("explain", handle=handle)]
        assert words[0] == words[1] == words[2] != []


def check_cancel(stage: Stage) -> None:
    functions = stage.functions()
    key = f"k{functions[0]}"
    for function in functions:
        one, other = stage.submit(function, 2)
        assert stage.ask(stage.nodes[0], "cancel", handle=one) == {"cancelled": [one]}
        assert text(stage.nodes[1], f"cancel job {other}") == ["OK"]
        assert stage.states([one, other]) == ["cancelled", "cancelled"]
        stage.submit(function, 4, key=key)
    some = stage.ask(stage.nodes[1], "cancel", key=key, limit=5)
    assert (some["count"], len(some["cancelled"]), some["more"]) == (5, 5, True)
    rest = stage.ask(stage.nodes[2], "cancel", key=key)
    assert (rest["count"], rest["more"]) == (7, False)
    assert set(stage.states(some["cancelled"] + rest["cancelled"])) == {"cancelled"}


def check_retry(stage: Stage) -> None:
    functions = stage.functions()
    key = f"k{functions[0]}"
    handles = [handle for function in functions for handle in stage.submit(function, 3, key=key)]
    assert stage.ask(stage.nodes[0], "cancel", key=key)["count"] == 9
    assert stage.ask(stage.nodes[0], "retry", handle=handles[-1]) == {"retried": handles[-1:]}
    answer = stage.ask(stage.nodes[1], "retry", key=key, states=["cancelled"])
    assert answer["count"] == 8
    assert sorted(answer["retried"]) == sorted(handles[:-1])
    assert set(stage.states(handles)) == {"ready"}


def check_bulk(stage: Stage) -> None:
    functions = stage.functions()
    key = f"k{functions[0]}"
    handles = [handle for function in functions for handle in stage.submit(function, 4, key=key)]
    node = stage.nodes[1]
    dry = stage.ask(node, "bulk", action="cancel", key=key, dry_run=True)
    assert (dry["matched"], dry["state"], dry["dry_run"]) == (12, "done", True)
    with pytest.raises(ServerRefused, match="12 jobs match, and 11 were expected"):
        stage.ask(node, "bulk", action="cancel", key=key, expect=11)
    begun = stage.ask(node, "bulk", action="cancel", key=key, expect=12)
    assert begun["matched"] == 12
    eventually(lambda: progress_of(stage, begun["id"])["state"] == "done", "the action has ended")
    assert progress_of(stage, begun["id"])["changed"] == 12
    assert set(stage.states(handles)) == {"cancelled"}
    again = stage.ask(node, "bulk", action="retry", handles=handles)
    eventually(lambda: progress_of(stage, again["id"])["changed"] == 12, "the jobs are retried")
    some = stage.ask(stage.nodes[2], "bulk", action="cancel", key=key, limit=5)
    assert some["matched"] == 5
    eventually(lambda: progress_of(stage, some["id"])["changed"] == 5, "no more are cancelled")
    assert sorted(stage.states(handles)).count("cancelled") == 5


def progress_of(stage: Stage, number: str) -> Any:
    (progress,) = stage.ask(stage.nodes[0], "bulk_actions", id=number)
    assert progress["id"] == number
    return progress


def check_bulk_actions(stage: Stage) -> None:
    check_bulk(stage)
    lists = stage.ask_all("bulk_actions")
    assert lists[0] == lists[1] == lists[2]
    assert {row["node"] for row in lists[0]} == set(NAMES)
    with pytest.raises(ServerRefused, match="no such bulk action"):
        stage.ask(stage.nodes[0], "bulk_actions", id="b-none-1")


def check_abort_bulk(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.submit(function, 2)
    begun = stage.ask(stage.nodes[0], "bulk", action="cancel", function=functions[1])
    assert stage.ask(stage.nodes[2], "abort_bulk", id=begun["id"])["state"] in ("aborted", "done")


def check_change(stage: Stage) -> None:
    for function in stage.functions():
        (handle,) = stage.submit(function)
        assert stage.ask(stage.nodes[0], "change", handle=handle, priority="high")["priority"] == "high"
        assert [answer["priority"] for answer in stage.ask_all("job", handle=handle)] == ["high"] * 3


def check_complete(stage: Stage) -> None:
    for function in stage.functions():
        (handle,) = stage.submit(function)
        assert stage.ask(stage.nodes[0], "complete", handle=handle, result="done")["state"] == "done"
        assert [answer["result"] for answer in stage.ask_all("job", handle=handle)] == ["done"] * 3


def check_wait_for(stage: Stage) -> None:
    """A queued job waits for one of another node, whichever node is asked."""
    functions = stage.functions()
    for number, function in enumerate(functions):
        (waiting,), (awaited,) = stage.submit(function), stage.submit(functions[number - 1])
        stage.ask(stage.nodes[number - 2], "wait_for", handle=waiting, after=[awaited])
        assert stage.states([waiting, awaited]) == ["waiting", "ready"]
        stage.ask(stage.nodes[0], "cancel", handle=awaited)
        for node in stage.nodes:
            eventually(partial(is_ready, stage, node, waiting), "the awaited job has ended")


def is_ready(stage: Stage, node: OwnerNode, handle: str) -> bool:
    return bool(stage.ask(node, "job", handle=handle)["state"] == "ready")


def check_spawn(stage: Stage) -> None:
    """No job waits for another one, so none can be made to wait for others too."""
    for function in stage.functions():
        one, other = stage.submit(function, 2)
        assert stage.ask_all("spawn", handle=one, jobs=[other]) == [{"successors": 0}] * 3


def check_schedule(stage: Stage) -> None:
    """Also that a schedule changes its owner with its function."""
    functions = stage.functions()
    name = f"s{functions[0]}"
    for function in functions:
        answer = stage.ask(stage.nodes[0], "schedule", name=name, function=function, every_seconds=86_400)
        assert answer["function"] == function
        for node in stage.nodes:
            rows = [row for row in stage.ask(node, "schedules") if row["name"] == name]
            assert [(row["function"], row["node"]) for row in rows] == [(function, NAMES[functions.index(function)])]
    assert stage.ask(stage.nodes[1], "unschedule", name=name) == {"name": name, "removed": True}


def check_schedules(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.ask(stage.nodes[2], "schedule", name=f"s{function}", function=function, cron="0 0 1 1 *", overlap=True)
    for answer in stage.ask_all("schedules"):
        assert {f"s{function}" for function in functions} <= {row["name"] for row in answer}
        assert [row["name"] for row in answer] == sorted(row["name"] for row in answer)
    for function in functions:
        for node in stage.nodes:
            assert stage.ask(node, "pause_schedule", name=f"s{function}")["paused"]
            assert not stage.ask(node, "resume_schedule", name=f"s{function}")["paused"]
            handle = stage.ask(node, "run_schedule", name=f"s{function}")["handle"]
            assert stage.ask(stage.nodes[0], "job", handle=handle)["function"] == function
        assert stage.ask(stage.nodes[0], "unschedule", name=f"s{function}")["removed"]
    with pytest.raises(ServerRefused, match="no schedule"):
        stage.ask(stage.nodes[0], "run_schedule", name=f"s{functions[0]}")


def check_declare(stage: Stage) -> None:
    functions = stage.functions()
    app = f"app-{functions[0]}"
    for function in functions:
        stage.ask(stage.nodes[1], "limit", function=function, concurrency=2, owner=app)
        stage.ask(stage.nodes[1], "schedule", name=f"s{function}", function=function, every_seconds=3600, owner=app)
    declared = {"owner": app, "schedules": [f"s{functions[0]}"], "functions": functions[:1]}
    for remove in (False, True):
        answer = stage.ask(stage.nodes[2], "declare", **declared, remove=remove)
        assert sorted(answer["functions"]) == sorted(functions[1:])
        assert sorted(answer["schedules"]) == sorted(f"s{function}" for function in functions[1:])
    answer = stage.ask(stage.nodes[0], "declare", **declared)
    assert (answer["functions"], answer["schedules"]) == ([], [])


WALK: dict[str, Callable[[Stage], None]] = {
    "server": check_server,
    "open_dashboard": of_the_node_that_is_asked("open_dashboard"),
    "nodes": of_the_node_that_is_asked("nodes"),
    "overview": check_overview,
    "flows": check_flows,
    "series": check_series,
    "stream": of_the_node_that_is_asked("stream"),
    "at": check_at,
    "runs": of_the_node_that_is_asked("runs", since=1, until=2),
    "storage": check_storage,
    "connections": check_connections,
    "explain_server": check_explain_server,
    "workers": check_workers,
    "control_workers": check_control_workers,
    "audit": of_the_node_that_is_asked("audit"),
    "functions": check_functions,
    "times": check_times,
    "keys": check_keys,
    "pause": check_pause,
    "resume": check_pause,
    "limit": check_limit,
    "place": check_place,
    "queue_limits": only_in_the_text_protocol(check_queue_limits),
    "create_function": only_in_the_text_protocol(check_create_function),
    "drop_function": only_in_the_text_protocol(check_drop_function),
    "jobs": check_jobs,
    "job": check_job,
    "errors": check_errors,
    "graph": check_graph,
    "states": check_states,
    "explain": check_explain,
    "cancel": check_cancel,
    "retry": check_retry,
    "bulk": check_bulk,
    "bulk_actions": check_bulk_actions,
    "abort_bulk": check_abort_bulk,
    "change": check_change,
    "complete": check_complete,
    "wait_for": check_wait_for,
    "spawn": check_spawn,
    "schedule": check_schedule,
    "declare": check_declare,
    "schedules": check_schedules,
    "unschedule": check_schedule,
    "pause_schedule": check_schedules,
    "resume_schedule": check_schedules,
    "run_schedule": check_schedules,
}
# It would stop the node that is asked.
NOT_WALKED = {"shutdown"}


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in NOT_WALKED])
def test_a_verb_is_answered_by_one_system(stage: Stage, verb: str) -> None:
    WALK[verb](stage)


# --- faces ---


def test_text_commands_list_what_all_nodes_have(stage: Stage) -> None:
    functions = stage.functions()
    handles = [handle for function in functions for handle in stage.submit(function, unique=f"u{function}")]
    with PlainWorker(stage.nodes[2], functions[2] + "x"):
        for node in stage.nodes:
            status = {line.split("\t")[0]: line.split("\t")[1:] for line in text(node, "status")}
            assert [status[function] for function in functions] == [["1", "0", "0"]] * 3
            priorities = {line.split("\t")[0]: line.split("\t")[1:] for line in text(node, "prioritystatus")}
            assert [priorities[function] for function in functions] == [["0", "1", "0", "0"]] * 3
            assert set(handles) <= {line.split("\t")[0] for line in text(node, "show jobs")}
            assert {f"u{function}" for function in functions} <= set(text(node, "show unique jobs"))
            eventually(partial(lists_worker, node, functions[2] + "x"), "the worker is listed")


def lists_worker(node: OwnerNode, function: str) -> bool:
    return sum(line.endswith(f": {function}") for line in text(node, "workers")) == 1


def test_tables_of_the_command_line_have_a_column_for_the_node(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.submit(function)
        stage.ask(stage.nodes[0], "schedule", name=f"s{function}", function=function, every_seconds=86_400)
    for words in (["functions"], ["schedules"], ["server", "--connections"], ["server"]):
        lines = command(stage.nodes[1], *words)
        heads = [line.split()[1] for line in lines if line.startswith(("FUNCTION", "NAME", "ADDRESS", "LISTENER"))]
        assert heads == ["NODE"], lines
    rows = {line.split()[0]: line.split()[1] for line in command(stage.nodes[1], "functions")}
    assert [rows[function] for function in functions] == list(NAMES)
    assert "lacks" not in "".join(lines)


def command(node: OwnerNode, *words: str) -> list[str]:
    program = [sys.executable, "-m", "switchgear", *words, "--server", f"gearman://{HOST}:{node.port}"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_http_answers_for_all_nodes(stage: Stage) -> None:
    (function, *_) = stage.functions()
    base = f"http://{HOST}:{stage.nodes[2].http_port}/v1"
    (handle,) = stage.submit(function)
    change = Request(
        f"{base}/functions/{function}", b'{"paused": true}', {"Content-Type": "application/json"}, method="PATCH"
    )
    with urlopen(change) as answer:
        assert json.load(answer)["paused"]
        assert "Switchgear-Unreachable" not in answer.headers
    with urlopen(f"{base}/jobs/{handle}") as answer:
        assert json.load(answer)["state"] == "ready"
    with urlopen(Request(f"{base}/jobs/{handle}", method="DELETE")) as answer:
        assert answer.status in (200, 204)
    assert stage.states([handle]) == ["cancelled"]


# --- jobs that only their owner has ---


def test_foreground_jobs_are_found_from_every_node(stage: Stage) -> None:
    """The store does not have them."""
    functions = stage.functions()
    for function, entry in zip(functions, (stage.nodes[1], stage.nodes[2], stage.nodes[0]), strict=True):
        with entry.client() as client:
            pending = client.submit(function, b"held")
            for node in stage.nodes:
                row = stage.ask(node, "job", handle=pending.handle)
                assert (row["function"], row["state"], row["payload"]) == (function, "ready", "held")
                assert stage.ask(node, "states", handles=[pending.handle])["states"] == ["ready"]
            assert stage.ask(stage.nodes[0], "cancel", handle=pending.handle) == {"cancelled": [pending.handle]}


def test_the_status_of_a_job_is_the_same_at_every_node(stage: Stage) -> None:
    for function in stage.functions():
        (handle,) = stage.submit(function)
        for node in stage.nodes:
            with node.client() as client:
                status = client.status(handle)
                assert (status.known, status.running) == (True, False), node.name
        stage.ask(stage.nodes[0], "cancel", handle=handle)
        for node in stage.nodes:
            with node.client() as client:
                assert not client.status(handle).known
                assert not client.status(handle + "99999").known


def test_the_live_tables_of_the_dashboard_have_all_nodes(stage: Stage) -> None:
    functions = stage.functions()
    for function in functions:
        stage.submit(function)
    with PlainWorker(stage.nodes[2], functions[0] + "x"):
        eventually(lambda: stage.row(stage.nodes[0], functions[0] + "x"), "the worker is known")
        for node in stage.nodes:
            tables = snapshots(node)
            rows = {row["name"]: row for row in tables["functions"]}
            assert [rows[function]["ready"] for function in functions] == [1, 1, 1]
            assert rows[functions[0] + "x"]["workers"] == 1
            ids = [row["id"] for row in tables["workers"] if row["protocol"] == "gearman"]
            assert len(ids) == len(set(ids)) > 0
            assert any(str(each).endswith("@cleo") for each in ids) == (node.name != "cleo")


def snapshots(node: OwnerNode) -> dict[str, list[dict[str, Any]]]:
    """The first contents of the live tables."""
    tables: dict[str, list[dict[str, Any]]] = {}
    with urlopen(f"http://{HOST}:{node.http_port}/v1/events?topics=functions,workers", timeout=30) as stream:
        topic = ""
        for line in stream:
            if line.startswith(b"event:"):
                topic = line[6:].strip().decode()
            elif line.startswith(b"data:") and topic in ("functions", "workers"):
                message = json.loads(line[5:])
                assert message["kind"] == "snapshot"
                data = message["data"]
                tables[topic] = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
            if len(tables) == 2:
                break
    return tables


def test_a_worker_of_another_node_is_controlled_by_its_id_and_node(stage: Stage) -> None:
    function = stage.functions()[1] + "c"
    with PlainWorker(stage.nodes[1], function):
        eventually(
            lambda: [row for row in stage.ask(stage.nodes[0], "workers") if function in row["functions"]], "it came"
        )
        (worker,) = [row for row in stage.ask(stage.nodes[0], "workers") if function in row["functions"]]
        answer = stage.ask(stage.nodes[2], "control_workers", action="ping", workers=f"{worker['id']}@bob")
        assert answer["not_controllable"] == [{"id": worker["id"], "name": "-", "node": "bob"}]
