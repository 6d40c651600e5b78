"""Requests that come all at once do not keep other peers waiting."""

from __future__ import annotations

from tests.protocols.http.harness import HttpHarness, request


def test_after_some_operations_others_are_served() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    waiting: list[object] = []
    peer.wire.when_taken = waiting.append  # type: ignore[method-assign, assignment]
    peer.send(request("GET", "/v1/overview") * 20, *["GET"] * 20)
    assert len(peer.heard()) < 10
    while waiting:
        waiting.pop()()  # type: ignore[operator]
        harness.turn()
    assert len(peer.heard()) > 10


def test_all_are_answered_in_their_order() -> None:
    harness = HttpHarness()
    targets = ["/v1/overview", "/livez", "/v1/jobs", "/v1/none"] * 10
    peer = harness.peer("c")
    peer.send(b"".join(request("GET", target) for target in targets), *["GET"] * len(targets))
    answers = peer.heard()
    assert [answer.status for answer in answers] == [200, 200, 200, 404] * 10
    assert "live" in answers[1].json
