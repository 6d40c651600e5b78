"""`switchgear server`."""

from __future__ import annotations

import pytest

from tests.cli.commands import call, call_json
from tests.support.servers import running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire, request

pytestmark = pytest.mark.system


HEADER_BYTES = 12  # what a long packet begins with is read and not held


def test_it_says_what_peers_make_the_server_hold() -> None:
    with running_switchgear() as server, Wire(server.address) as peer:
        packet = request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * 100_000)
        peer.send_bytes(packet[:50_000])

        def unfinished() -> int:
            return int(call_json(server, "server")["memory"]["input"])

        assert eventually(unfinished, "the beginning of the packet is counted") == 50_000 - HEADER_BYTES
        answer = call_json(server, "server")
        listener = next(listener for listener in answer["listeners"] if "gearman:" in listener["url"])
        assert listener["input"] == 50_000 - HEADER_BYTES
        assert listener["largest"]["input"] == 50_000 - HEADER_BYTES
        shown = call(server, "server").stdout
        assert "48.8 KiB  packets that are not complete" in shown
        assert "serving" in shown
        peer.send_bytes(packet[50_000:])
        eventually(lambda: unfinished() == 0, "the packet is complete")


def test_the_limit_is_that_of_the_setting() -> None:
    with running_switchgear("--set", "limits.memory_bytes=256MiB") as server:
        assert call_json(server, "server")["memory"]["limit"] == 256 * 2**20
        assert "of 256 MiB" in call(server, "server").stdout


def test_without_a_setting_it_is_half_of_the_memory_there_is() -> None:
    with running_switchgear() as server:
        assert call_json(server, "server")["memory"]["limit"] > 2**20


def test_who_holds_most_is_shown_first() -> None:
    with running_switchgear() as server, Wire(server.address) as small, Wire(server.address) as large:
        small.send(Kind.SUBMIT_JOB, b"f", b"", b"x")
        large.send(Kind.SET_CLIENT_ID, b"the large one")
        large.send(Kind.SUBMIT_JOB, b"f", b"", b"x" * 100_000)
        small.receive_packet()
        large.receive_packet()
        answer = call_json(server, "server", "--connections")
        first, second = answer["connections"][:2]
        assert (first["client_id"], first["waits_for"], second["waits_for"]) == ("the large one", 1, 1)
        assert first["held"] > 100_000 > second["held"] > 0
        lines = call(server, "server", "--connections").stdout.splitlines()
        assert "the large one" in lines[1]
        assert max(map(len, lines)) <= 80


def test_a_full_memory_is_explained() -> None:
    with running_switchgear("--set", "limits.memory_bytes=256MiB") as server, Wire(server.address) as peer:
        assert call(server, "explain").stdout == "submissions are taken\n"
        for _ in range(4):
            peer.send(Kind.SUBMIT_JOB, b"greedy", b"", bytes(25 * 2**20))
            peer.receive_packet()
        for size in (2**20, 2**10, 1):
            while True:
                peer.send(Kind.SUBMIT_JOB, b"greedy", b"", bytes(size))
                if peer.receive_packet().type != Kind.JOB_CREATED:
                    break
        shown = call(server, "explain").stdout
        assert "memory is full" in shown
        assert "most of it for unfinished jobs" in shown
        assert "the function with most jobs is 'greedy'" in shown
        assert "the connection that holds most is 127.0.0.1:" in shown
        words = [reason["word"] for reason in call_json(server, "explain")["reasons"]]
        assert words == ["memory_full", "largest_function", "largest_connection"]
        assert call_json(server, "server")["events"]["memory_full"] >= 3
        assert max(map(len, call(server, "server").stdout.splitlines())) <= 80
