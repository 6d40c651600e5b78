"""Permissions and the audit log at several nodes that own functions: the node that is asked sees to both."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from switchgear.access.access_file import AccessEntry, AccessList, write_access_file
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused
from switchgear.verbs.access import Role
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import OwnerNode, function_of, packet, settled
from tests.system.secured_server import TOKENS, entry

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

NAMES = ("ada", "bob")
GET_STATUS_UNIQUE, STATUS_RES_UNIQUE, AUTHENTICATE = 41, 42, 1020


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    """Two nodes; `mailer` is restricted to one function of the second one."""
    place = tmp_path_factory.mktemp("access")
    url = postgres.new_url()
    access = place / "access.toml"
    made = [OwnerNode(name, url, place, f"access.file={access}", joblog=url, lease_seconds=6.0) for name in NAMES]
    mine = function_of(made[1], 1, NAMES)
    entries = (entry("mailer", Role.OPERATE, mine), entry("ops", Role.OPERATE), entry("worker", Role.SUBMIT))
    anonymous = AccessEntry("anonymous", frozenset({Role.READ}))
    write_access_file(access, AccessList(anonymous, {each.name: each for each in entries}))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("SWITCHGEAR_TOKEN", TOKENS["ops"])
        for node in made:
            stack.callback(node.end)
            node.start()
        for node in made:
            node.wait_until_it_answers()
        settled(made)
        yield made


def client_of(node: OwnerNode, identity: str) -> Client:
    return Client(f"gearman://{HOST}:{node.port}", token=TOKENS[identity])


def test_a_role_is_needed_at_the_node_that_is_asked(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[1], 2, NAMES)
    with client_of(nodes[0], "worker") as client, pytest.raises(ServerRefused, match="pause needs the role operate"):
        client.control("pause", function=function)
    with client_of(nodes[0], "ops") as client:
        assert not any(row["paused"] for row in client.control("functions"))


def test_an_identity_sees_and_changes_its_functions_at_every_node(nodes: list[OwnerNode]) -> None:
    mine, other = function_of(nodes[1], 1, NAMES), function_of(nodes[1], 2, NAMES)
    submitter = client_of(nodes[0], "worker")
    own, foreign = (submitter.submit(name, b"x", background=True).handle for name in (mine, other))
    held = submitter.submit(other, b"x").handle
    with client_of(nodes[0], "ops") as client:
        client.control("schedule", name="s", function=other, every_seconds=86_400)
    for node in nodes:
        with client_of(node, "mailer") as client:
            assert {row["name"] for row in client.control("functions")} == {mine}
            assert [row["handle"] for row in client.control("jobs")["jobs"]] == [own]
            assert client.control("states", handles=[own])["states"] == ["ready"]
            assert client.control("schedules") == []
            assert client.control("pause", function=mine)["paused"]
            for verb, arguments in (
                ("pause", {"function": other}),
                ("job", {"handle": foreign}),
                ("cancel", {"handle": foreign}),
                ("states", {"handles": [foreign]}),
                ("unschedule", {"name": "s"}),
                ("schedule", {"name": "s", "function": mine, "every_seconds": 60}),
            ):
                with pytest.raises(ServerRefused, match="may not use the function"):
                    client.control(verb, **arguments)
    with client_of(nodes[0], "mailer") as client:  # a foreground job, which only the other node knows
        assert client.control("states", handles=[held])["states"] == ["unknown"]
        with pytest.raises(ServerRefused, match="may not use the function"):
            client.control("job", handle=held)
        with pytest.raises(ServerRefused, match="no such job"):
            client.control("cancel", handle=held)
    submitter.close()


def known_keys(node: OwnerNode, identity: str, keys: list[bytes]) -> list[bytes]:
    """The keys of which this node tells a status."""
    known: list[bytes] = []
    with socket.create_connection((HOST, node.port), timeout=30) as peer, peer.makefile("rb") as answers:
        peer.sendall(packet(AUTHENTICATE, TOKENS[identity].encode()))
        peer.sendall(b"".join(packet(GET_STATUS_UNIQUE, key) for key in keys))
        for _ in range(1 + len(keys)):
            header = answers.read(12)
            body = answers.read(int.from_bytes(header[8:], "big")).split(b"\0")
            if header[7] == STATUS_RES_UNIQUE and body[1] == b"1":
                known.append(body[0])
    return known


def test_the_status_of_a_key_is_told_to_those_who_may_use_the_function(nodes: list[OwnerNode]) -> None:
    """At both nodes, also to an identity that may only submit."""
    mine, other = function_of(nodes[1], 1, NAMES), function_of(nodes[1], 2, NAMES)
    with client_of(nodes[0], "worker") as client:
        for function, key in ((mine, "mine"), (other, "other")):
            client.submit(function, b"x", unique=key, background=True)
    for node in nodes:
        for identity, keys in (("mailer", [b"mine"]), ("worker", [b"mine", b"other"])):
            assert known_keys(node, identity, [b"mine", b"other"]) == keys


def test_the_audit_log_names_who_has_asked_which_node(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[1], 3, NAMES)
    with client_of(nodes[0], "ops") as client:
        client.control("limit", function=function, concurrency=3)
        client.admin(f"maxqueue {function} 7")
    found = eventually(partial(entries_about, nodes[1], function), "both are in the audit log")
    assert sorted((each["identity"], each["verb"]) for each in found) == [("ops", "limit"), ("ops", "maxqueue")]
    assert {each["protocol"] for each in found} == {"gearman"}


def entries_about(node: OwnerNode, function: str) -> list[dict[str, Any]]:
    """The entries about a function, when there are two."""
    with client_of(node, "ops") as client:
        found = [each for each in client.control("audit")["entries"] if function in each["target"]]
    return found if len(found) >= 2 else []
