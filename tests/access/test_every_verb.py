"""Every verb of every protocol with every role: what the tables permit happens, and everything else is refused.

A verb that has no row in the table of its protocol fails a test here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from switchgear.access.access_file import AccessEntry, AccessList
from switchgear.access.identities import Identities, ListenerAccess
from switchgear.access.permissions import EVERYBODY, Permissions
from switchgear.access.tokens import digest_of
from switchgear.protocols.context import Context
from switchgear.protocols.dwork.codec import encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.session import IN_STEPS
from switchgear.protocols.dwork.session import ON_REQUEST as DWORK_REQUESTS
from switchgear.protocols.dwork.session import REQUEST_ROLES as DWORK_ROLES
from switchgear.protocols.gearman.admin import ON_COMMAND, VERB_OF_COMMAND
from switchgear.protocols.gearman.messages import ARGUMENTS, Packet
from switchgear.protocols.gearman.packet_access import PACKET_ROLES
from switchgear.protocols.gearman.packet_dispatch import ON_REQUEST
from switchgear.protocols.gearman_draft import messages as draft_messages
from switchgear.protocols.gearman_draft.codec import packet as draft_packet
from switchgear.protocols.gearman_draft.session import ON_PACKET
from switchgear.protocols.gearman_draft.session import PACKET_ROLES as DRAFT_ROLES
from switchgear.protocols.gearmonkey.command_access import COMMAND_ACCESS, Names
from switchgear.protocols.gearmonkey.command_table import VERBS as REDIS_VERBS
from switchgear.protocols.http.gearmand_session import GearmandHttpSession
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Route
from switchgear.protocols.pingpong.broker import CLIENT_ROLES, WORKER_ROLES
from switchgear.protocols.session import Session
from switchgear.protocols.wmp.manager import COMMAND_ROLES
from switchgear.verbs.access import Role
from switchgear.verbs.table import VERBS
from tests.protocols.dwork.harness import DworkHarness
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.protocols.gearmonkey.harness import MonkeyHarness
from tests.protocols.http.harness import HttpHarness, HttpPeer
from tests.protocols.pingpong.harness import Broker
from tests.protocols.wmp.harness import WmpHarness
from tests.support.wire import request

EACH_ROLE = pytest.mark.parametrize("role", [None, *Role], ids=lambda role: role.value if role else "no-role")
NAME = "mail"  # of the identity's function; jobs are also submitted to `other`

refused: list[str] = []


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Note what is refused."""

    def note(self: Context, session: Session, text: str) -> None:
        refused.append(text)

    refused.clear()
    monkeypatch.setattr(Context, "count_access_refused", note)
    yield
    refused.clear()


def with_role(role: Role | None, *globs: str) -> Permissions:
    return Permissions("somebody", [role] if role is not None else [], globs)


def expect(role: Role | None, needed: frozenset[Role], what: str) -> None:
    """One request was made by somebody with this role: was it refused if it had to be?"""
    may = not needed or bool(with_role(role).roles & needed)
    assert bool(refused) != may, f"{what} as {role}: {refused}"
    refused.clear()


# --- Gearman ---


def test_every_gearman_packet_has_a_row() -> None:
    assert set(PACKET_ROLES) == set(ON_REQUEST)


@EACH_ROLE
@pytest.mark.parametrize("packet", sorted(PACKET_ROLES), ids=lambda packet: Packet(packet).name)
def test_gearman_packets(packet: int, role: Role | None) -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.session.identify(with_role(role))
    arguments = [NAME.encode()] + [b"1"] * (ARGUMENTS[Packet(packet)] - 1)
    if packet == Packet.CONTROL:
        return  # see the next test
    talker.send(request(packet, *arguments[: ARGUMENTS[Packet(packet)]]))
    expect(role, PACKET_ROLES[packet], Packet(packet).name)


@EACH_ROLE
@pytest.mark.parametrize("verb", [verb for verb in VERBS.values() if not verb.is_text_only], ids=lambda verb: verb.name)
def test_operator_verbs(verb: Any, role: Role | None) -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.session.identify(with_role(role))
    talker.send(request(Packet.CONTROL, verb.name.encode(), b"{}"))
    expect(role, verb.roles, verb.name)


@EACH_ROLE
@pytest.mark.parametrize("command", sorted(ON_COMMAND))
def test_text_commands(command: bytes, role: Role | None) -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.session.identify(with_role(role))
    talker.send(command + b" jobs\n")
    expect(role, VERB_OF_COMMAND[command].roles, command.decode())


@EACH_ROLE
def test_long_packets(role: Role | None) -> None:
    harness = Harness(packet_bytes=10_000_000)
    talker = harness.talker("peer")
    talker.session.identify(with_role(role))
    talker.send(request(Packet.SUBMIT_JOB_BG, NAME.encode(), b"", bytes(6_000_000)))
    expect(role, PACKET_ROLES[Packet.SUBMIT_JOB_BG], "a long packet")


# --- the draft ---


def test_every_draft_packet_has_a_row() -> None:
    assert set(DRAFT_ROLES) == set(ON_PACKET)


@EACH_ROLE
@pytest.mark.parametrize("kind", sorted(DRAFT_ROLES), ids=lambda kind: draft_messages.Packet(kind).name)
def test_draft_packets(kind: int, role: Role | None) -> None:
    harness = MixedHarness()
    talker = harness.talker("peer")
    talker.wire.permissions = with_role(role)
    bodies = {
        draft_messages.Packet.WORKER_CONNECT: b"mail\0",
        draft_messages.Packet.JOB_CREATE_REQ: b"mail\0\0\2",
    }
    talker.send(draft_packet(draft_messages.Packet(kind), bodies.get(draft_messages.Packet(kind), b"")))
    expect(role, DRAFT_ROLES[kind], draft_messages.Packet(kind).name)


# --- ZeroMQ ---


def test_every_wmp_command_has_a_row() -> None:
    assert set(COMMAND_ROLES) == set(WmpHarness().manager._handlers)


@EACH_ROLE
@pytest.mark.parametrize("command", sorted(COMMAND_ROLES))
def test_wmp_commands(command: bytes, role: Role | None) -> None:
    harness = WmpHarness()
    harness.manager.is_access_checked = True
    harness.manager.peer_identified(b"w", with_role(role))
    headers: dict[str, Any] = (
        {"roles": [NAME]} if command in (b"READY", b"GIVE") else {"job": b"1.1.1", "status": "done"}
    )
    harness.worker("w").say(command, **headers)
    expect(role, COMMAND_ROLES[command], command.decode())


@EACH_ROLE
def test_ping_pong_clients_and_workers(role: Role | None) -> None:
    broker = Broker()
    for door in (broker.frontend, broker.backend):
        door.session.is_access_checked = True
        door.session.peer_identified(b"peer", with_role(role))
    broker.frontend.send(b"peer", b"", b"job")
    expect(role, CLIENT_ROLES, "a request")
    for word in (b"READY", b"PING", b"result"):
        broker.backend.send(b"peer", b"", word)
        expect(role, WORKER_ROLES, word.decode())


def test_every_dwork_request_has_a_row() -> None:
    assert set(DWORK_ROLES) == {*DWORK_REQUESTS, *IN_STEPS}


@EACH_ROLE
@pytest.mark.parametrize("kind", sorted(DWORK_ROLES), ids=lambda kind: QueryType(kind).name)
def test_dwork_requests(kind: int, role: Role | None) -> None:
    harness = DworkHarness()
    harness.session.is_access_checked = True
    harness.session.peer_identified(b"peer", with_role(role))
    tasks = [Task(b"t", b"")]
    queries = {
        QueryType.CREATE: Query(QueryType.CREATE, tasks),
        QueryType.COMPLETE: Query(QueryType.COMPLETE, tasks, location=b"w"),
        QueryType.TRANSFER: Query(QueryType.TRANSFER, tasks, location=b"w"),
        QueryType.STEAL: Query(QueryType.STEAL, location=b"w"),
        QueryType.EXIT: Query(QueryType.EXIT, location=b"w"),
        QueryType.LOOKUP: Query(QueryType.LOOKUP, name=b"t"),
    }
    query = queries.get(QueryType(kind)) or Query(QueryType(kind))
    harness.listener.send(b"peer", b"", encode(query))
    expect(role, DWORK_ROLES[kind], QueryType(kind).name)


@EACH_ROLE
def test_a_dwork_request_in_steps(role: Role | None) -> None:
    harness = DworkHarness()
    harness.session.is_access_checked = True
    harness.session.peer_identified(b"peer", with_role(role))
    tasks = [Task(b"task %d" % number, b"") for number in range(2000)]
    harness.listener.send(b"peer", b"", encode(Query(QueryType.CREATE, tasks)))
    expect(role, DWORK_ROLES[QueryType.CREATE], "a long Create")
    assert harness.engine.job_count() == (2000 if role in (Role.SUBMIT, Role.ADMIN) else 0)


# --- GearMonkey ---


def test_every_redis_command_has_a_row() -> None:
    assert {name.split(b" ")[0] for name in COMMAND_ACCESS} == set(REDIS_VERBS)
    for name in COMMAND_ACCESS:
        first, _, second = name.partition(b" ")
        assert not second or second in REDIS_VERBS[first].subcommands


WORDS: dict[Names, tuple[str, ...]] = {
    Names.NONE: (),
    Names.FIRST: ("job:mail:1",),
    Names.ALL: ("job:mail:1",),
    Names.ALL_BUT_LAST: ("queue:mail:high", "0.1"),
    Names.SCRIPT: ("script", "1", "queue:mail:scheduled", "0"),
    Names.CHANNELS: ("channel:mail",),
    Names.FIRST_CHANNEL: ("channel:mail", "text"),
    Names.EVERY_FUNCTION: ("0",),
}


@EACH_ROLE
@pytest.mark.parametrize("name", sorted(COMMAND_ACCESS))
def test_redis_commands(name: bytes, role: Role | None) -> None:
    row = COMMAND_ACCESS[name]
    first, _, second = name.decode().partition(" ")
    keys = {"queue:mail:high": b"QUEUE", "lock:mail:1": b"LOCK", "uid:mail": b"UID", "count:mail": b"COUNT"}
    tries: list[tuple[list[str], frozenset[Role]]] = [([], row.roles)] if not row.by_kind else []
    for kind, roles in row.by_kind.items():
        key = next(key for key, word in keys.items() if word.decode() == kind.name)
        tries.append(([key], roles))
    if first in ("HMSET", "HSET"):  # who writes to a draft submits; see the next test for other jobs
        tries = [([], frozenset({Role.SUBMIT}))]
    for given, roles in tries:
        harness = MonkeyHarness()
        harness.ask("client", "INCR", "uid:mail")  # job 1 is a draft
        talker = harness.talker("peer")
        talker.session.identify(with_role(role))
        words = [first, *([second] if second else []), *(given or WORDS[row.names])]
        if given and row.names is Names.ALL_BUT_LAST:
            words.append("0.1")
        verb = REDIS_VERBS[first.encode()].subcommands.get(second.encode()) or REDIS_VERBS[first.encode()]
        if verb.subcommands and len(words) == 1:
            words.append(next(iter(verb.subcommands)).decode())
            verb = verb.subcommands[words[-1].encode()]
        if first == "DBSIZE":
            words = [first]
        wanted = abs(verb.words)
        words += ["1"] * (wanted - len(words))
        harness.tell("peer", tuple(words))
        expect(role, roles, " ".join(words))


@EACH_ROLE
def test_writing_to_a_job_is_submitting_or_working(role: Role | None) -> None:
    harness = MonkeyHarness()
    number = harness.ask("client", "INCR", "uid:mail")
    harness.talker("peer").session.identify(with_role(role))
    harness.ask("peer", "HMSET", f"job:mail:{number}", "status", "idle", "input", "x")
    expect(role, frozenset({Role.SUBMIT}), "HMSET of a draft")
    harness.ask("client", "HMSET", f"job:mail:{number}", "status", "idle", "input", "x")
    harness.ask("client", "LPUSH", "queue:mail:normal", str(number))
    harness.ask("peer", "HMSET", f"job:mail:{number}", "status", "success", "output", "y")
    expect(role, frozenset({Role.WORK}), "HMSET of a job")


# --- HTTP ---


def http_access(role: Role | None, *globs: str) -> ListenerAccess:
    roles = frozenset([role] if role is not None else [])
    token = f"sha256:{digest_of(b'token').hex()}"
    return ListenerAccess(
        Identities(access=AccessList(identities={"somebody": AccessEntry("somebody", roles, globs, (token,))}))
    )


def http_status(harness: HttpHarness, route: Route, token: str | None = "token") -> int:
    path = re.sub(r"\{function\}", NAME, route.path)
    path = re.sub(r"\{\w+\}", "1", path)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    harness.send("peer", route.method, path, b"{}" if route.body else None, headers)
    return int(harness.peer("peer").heard_raw().split()[1])  # a stream of events has no end


@EACH_ROLE
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_http_routes(route: Route, role: Role | None) -> None:
    harness = HttpHarness()
    harness.access = http_access(role)
    harness.engine.submit(b"mail", b"", b"", 1, 1)
    status = http_status(harness, route)
    needed = EVERYBODY if route.is_public else route.roles
    may = not needed or bool(with_role(role).roles & needed)
    assert (status == 403) != may, (status, refused)
    assert status != 401
    refused.clear()
    harness.leave("peer")
    assert (http_status(harness, route, None) == 401) == (not route.is_public)
    harness.leave("peer")
    assert http_status(harness, route, "wrong") == 401


@EACH_ROLE
def test_gearmands_http(role: Role | None) -> None:
    harness = HttpHarness()
    harness.access = http_access(role)
    for token, function, needed in (("token", "mail", Role.SUBMIT), ("", "mail", None), ("wrong", "mail", None)):
        wire = HttpPeer(harness).wire
        session = GearmandHttpSession(harness, wire, harness.setup, any_host=True)
        wire.session = session
        header = f"Authorization: Bearer {token}\r\n" if token else ""
        harness.engine.advance(harness.clock.now_us())
        text = (
            f"POST /{function} HTTP/1.1\r\nHost: x\r\nX-Gearman-Background: true\r\n{header}Content-Length: 1\r\n\r\nx"
        )
        session.receive(text.encode())
        harness.turn()
        status = int(wire.written.split()[1])
        if needed is None:
            assert status == 401
        else:
            assert status == (200 if needed in with_role(role).roles else 403)


# --- functions ---


def test_no_verb_is_for_a_function_of_others() -> None:
    harness = Harness()
    talker = harness.talker("peer")
    harness.talker("owner").send(request(Packet.SUBMIT_JOB_BG, b"other", b"", b"x"))
    talker.session.identify(with_role(Role.ADMIN, "mail*"))
    for packet in (Packet.SUBMIT_JOB, Packet.SUBMIT_JOB_OPTIONS, Packet.CAN_DO, Packet.CAN_DO_TIMEOUT):
        talker.send(request(packet, b"other", *[b"1"] * (ARGUMENTS[packet] - 1)))
        assert refused.pop() == f"{packet.name}: somebody may not use the function other"
    for packet in (Packet.GET_STATUS, Packet.WATCH):
        talker.send(request(packet, b"H:t:1"))
        assert refused.pop() == f"{packet.name}: somebody may not use the function other"


@EACH_ROLE
@pytest.mark.parametrize("verb", [verb for verb in VERBS.values() if not verb.is_text_only], ids=lambda verb: verb.name)
def test_operator_verbs_are_for_the_functions_of_an_identity(verb: Any, role: Role | None) -> None:
    """Each verb about another function is refused, or shows nothing of it."""
    harness = Harness()
    owner, talker = harness.talker("owner"), harness.talker("peer")
    owner.send(request(Packet.SUBMIT_JOB_BG, b"other", b"", b"secret"), request(Packet.CAN_DO, b"other"))
    owner.send(request(Packet.CONTROL, b"schedule", b'{"name":"s","function":"other","every_seconds":60}'))
    owner.send(request(Packet.SET_CLIENT_ID, b"client of others"))
    owner.take_bytes()
    talker.session.identify(with_role(role, "mail*"))
    given = {
        "function": '"other"', "handle": '"H:t:1"', "name": '"s"', "handles": '["H:t:1"]', "every_seconds": "60",
        "since": "1",
    }  # fmt: skip
    names = [argument.name for argument in verb.arguments]
    chosen = [name for name in ("handle", "handles", "function", "name") if name in names]
    if verb.name == "schedule":
        sets = [{"name": '"s"', "function": '"mail"', "every_seconds": "60"}, {"name": '"t"', "function": '"other"'}]
    elif verb.name in ("cancel", "retry", "jobs"):
        sets = [{name: given[name]} for name in ("handle", "function", "since") if name in names]
    else:
        sets = [{name: given[name] for name in chosen}]
    for arguments in sets:
        text = "{" + ",".join(f'"{name}":{value}' for name, value in arguments.items()) + "}"
        talker.send(request(Packet.CONTROL, verb.name.encode(), text.encode()))
        heard = talker.take_bytes()
        if refused:
            assert b"NOT_ALLOWED" in heard
            refused.clear()
        else:
            assert b"other" not in heard, heard
            assert b"secret" not in heard
    job = harness.engine.job(1)
    assert job is not None
    assert not job.function.paused
    assert [schedule.function_name for schedule in harness.engine.schedules.values()] == [b"other"]


def test_the_state_of_the_server_has_the_sums_of_the_functions_of_an_identity() -> None:
    harness = Harness()
    owner, talker = harness.talker("owner"), harness.talker("peer")
    for function, count in ((b"other", 3), (b"mail", 2), (b"mail2", 1)):
        owner.send(*[request(Packet.SUBMIT_JOB_BG, function, b"", b"x")] * count)
    owner.send(request(Packet.CAN_DO, b"other"))
    harness.talker("worker").send(request(Packet.CAN_DO, b"mail"), request(Packet.CAN_DO, b"mail2"))
    talker.session.identify(with_role(Role.READ, "mail*"))
    largest = {"peer": "10.0.0.7:1000", "name": "other", "protocol": "gearman", "input": 9, "output": 0}
    figures: Any = {"url": "gearman://", "connections": 1, "input": 9, "output": 0, "largest": largest}
    assert harness.operator is not None
    harness.operator.context.listeners = lambda: [figures]
    talker.send(request(Packet.CONTROL, b"server", b"{}"))
    answer = json.loads(talker.take_bytes()[12:])
    assert answer["listeners"] == [{**figures, "largest": None}]
    assert (answer["jobs"], answer["functions"], answer["workers"], answer["events"]) == (3, 2, 1, {})


@EACH_ROLE
@pytest.mark.parametrize("command", sorted(ON_COMMAND))
@pytest.mark.parametrize("glob", ["mail*", "oth*"])
def test_text_commands_are_for_the_functions_of_an_identity(command: bytes, role: Role | None, glob: str) -> None:
    harness = Harness()
    owner, talker = harness.talker("owner"), harness.talker("peer")
    owner.send(request(Packet.SUBMIT_JOB_BG, b"other", b"other-key", b"x"), request(Packet.CAN_DO, b"other"))
    owner.send(request(Packet.SET_CLIENT_ID, b"other-client"))
    talker.session.identify(with_role(role, glob))
    words = {b"show": (b"jobs", b"unique jobs"), b"cancel": (b"job H:t:1",), b"maxqueue": (b"other 5",)}
    words |= {b"create": (b"function other",), b"drop": (b"function other",)}
    is_seen = False
    for arguments in words.get(command, (b"",)):
        refused.clear()
        talker.send(command + b" " + arguments + b"\n")
        heard = talker.take_bytes()
        is_seen |= not refused and (b"other" in heard or b"H:t:1" in heard or command in words)
    if command in (b"status", b"prioritystatus", b"workers", b"show", b"cancel", b"maxqueue"):
        may = bool(with_role(role).roles & VERB_OF_COMMAND[command].roles)
        assert is_seen == (may and glob == "oth*") or (command == b"show" and glob == "mail*"), heard
    if glob == "mail*":
        assert b"other" not in heard.replace(b"function+other", b""), heard
        assert harness.engine.job(1) is not None


@EACH_ROLE
@pytest.mark.parametrize("name", sorted(name for name, row in COMMAND_ACCESS.items() if row.names is not Names.NONE))
def test_redis_commands_are_for_the_functions_of_an_identity(name: bytes, role: Role | None) -> None:
    row = COMMAND_ACCESS[name]
    first, _, second = name.decode().partition(" ")
    for function, globs in (("other", ["mail*"]), ("other", ["oth*"])):
        harness = MonkeyHarness()
        harness.ask("client", "INCR", f"uid:{function}")
        talker = harness.talker("peer")
        talker.session.identify(with_role(role, *globs))
        given = [word.replace("mail", function) for word in WORDS[row.names]]
        verb = REDIS_VERBS[first.encode()].subcommands.get(second.encode()) or REDIS_VERBS[first.encode()]
        words = [first, *([second] if second else []), *given]
        if first == "DBSIZE":
            words = [first]
        words += ["1"] * (abs(verb.words) - len(words))
        refused.clear()
        harness.tell("peer", tuple(words))
        if globs == ["mail*"] or row.names is Names.EVERY_FUNCTION:
            assert refused, words


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_http_routes_are_for_the_functions_of_an_identity(route: Route) -> None:
    harness = HttpHarness()
    harness.engine.submit(b"other", b"", b"secret", 1, 1)
    harness.turn()
    harness.access = http_access(Role.ADMIN, "mail*")
    path = re.sub(r"\{\w+\}", lambda found: {"{function}": "other", "{handle}": "1"}.get(found[0], "s"), route.path)
    answer = harness.ask("peer", route.method, path, b"{}" if route.body else None, {"Authorization": "Bearer token"})
    assert b"secret" not in answer.body
    if "{function}" in route.path or "{handle}" in route.path:
        assert answer.status == 403
    elif not (route.is_scoped or route.is_public):
        assert (answer.status, answer.code) == (403, "not_allowed")
