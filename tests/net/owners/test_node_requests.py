"""How long another node is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from switchgear.net.owners.node_requests import CHANGE_SECONDS, LIST_SECONDS, SILENT_SECONDS, NodeRequests
from switchgear.protocols.pending_read import PendingRead


class Link:
    """A link whose node answers when the test says so."""

    def __init__(self) -> None:
        self.is_silent = False
        self.messages_received = 0
        self.reads: list[PendingRead] = []

    def ask(self, verb: str, arguments: bytes) -> PendingRead:
        self.reads.append(PendingRead())
        return self.reads[-1]


class Timers:
    """An event loop of which only the timers are used; they are fired by hand."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[..., None]]] = []

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> Any:
        self.set.append((seconds, callback))
        return SimpleNamespace(cancel=lambda: None)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    found = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


def node_requests() -> NodeRequests:
    return NodeRequests(None, None)  # type: ignore[arg-type]


def test_a_node_that_is_silent_is_waited_for_only_once(timers: Timers) -> None:
    link = Link()
    node: Any = SimpleNamespace(link=link)
    node_requests().ask(node, "functions", {}, LIST_SECONDS)
    assert timers.set[-1][0] == LIST_SECONDS
    timers.set[-1][1]()
    assert link.reads[0].is_done
    node_requests().ask(node, "functions", {}, LIST_SECONDS)
    assert timers.set[-1][0] == SILENT_SECONDS
    node_requests().ask(node, "cancel", {}, CHANGE_SECONDS)
    assert timers.set[-1][0] == CHANGE_SECONDS, "whether it has done that must be known if possible"


def test_a_node_that_is_slow_is_waited_for_as_long_as_before(timers: Timers) -> None:
    link = Link()
    node: Any = SimpleNamespace(link=link)
    node_requests().ask(node, "functions", {}, LIST_SECONDS)
    link.messages_received += 1  # the answer to something else
    timers.set[-1][1]()
    node_requests().ask(node, "functions", {}, LIST_SECONDS)
    assert timers.set[-1][0] == LIST_SECONDS
