"""Mutants of the engine, each of which forgets one kind of hold: peers then hear of changes that are not stored.

with mutated("a start that counts"):
    ...
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from switchgear import protocols
from switchgear.engine import state
from switchgear.engine.state import EngineState
from switchgear.model import Job, Peer
from switchgear.net import bridge
from switchgear.protocols.output import Output

ONLY_PLAIN_SOURCES = pytest.mark.skipif(
    hasattr(EngineState, "__mypyc_attrs__"), reason="a compiled engine cannot be mutated; the plain sources are"
)


def forget_in(*functions: str) -> Callable[[EngineState], None]:
    """`concern_speaker`, forgotten if one of these functions of the engine has asked for it."""
    original = EngineState.concern_speaker

    def concern_speaker(state: EngineState) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name.startswith("note"):
            frame = frame.f_back
        if frame.f_code.co_name not in functions:
            original(state)

    return concern_speaker


def forget_event_in(function: str) -> Callable[[EngineState, Peer], None]:
    original = EngineState.concern

    def concern(state: EngineState, peer: Peer) -> None:
        if sys._getframe(1).f_code.co_name != function:
            original(state, peer)

    return concern


def forget_promise(state: EngineState, job: Job) -> None:
    """A submission promises nothing."""


def forget_read(output: Output) -> None:
    """What was read elsewhere is taken for stored."""


# By the kind of hold: what forgets it.
MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a submission, or joining one": lambda patch: patch.setattr(EngineState, "promise", forget_promise),
    "a report that ends a job, or a cancel": lambda patch: patch.setattr(
        EngineState, "concern_speaker", forget_in("finish")
    ),
    "a job that is tried again later": lambda patch: patch.setattr(
        EngineState, "concern_speaker", forget_in("retry_later")
    ),
    "a job that is given back": lambda patch: patch.setattr(EngineState, "concern_speaker", forget_in("requeue")),
    "a job that is run again": lambda patch: patch.setattr(
        EngineState, "concern_speaker", forget_in("_begin_again", "_wait_again", "_make_ready_again")
    ),
    "a job that waits for more": lambda patch: patch.setattr(
        EngineState, "concern_speaker", forget_in("_append", "_begin_to_wait")
    ),
    "limits of a function": lambda patch: patch.setattr(EngineState, "concern_speaker", forget_in("set_limits")),
    "pausing a function": lambda patch: patch.setattr(EngineState, "concern_speaker", forget_in("pause")),
    "the end of a job, told to subscribers": lambda patch: patch.setattr(
        EngineState, "concern", forget_event_in("finish")
    ),
    "a start that counts": lambda patch: (
        patch.setattr(EngineState, "concern", forget_event_in("start")),
        patch.setattr(EngineState, "concern_speaker", forget_in("start")),
    )[0],
    "an end that was read elsewhere": lambda patch: patch.setattr(Output, "await_commit", forget_read),
}


@contextmanager
def mutated(kind: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[kind](patch)
        yield


# --- every single hold ---


@dataclass(frozen=True)
class HoldSite:
    """A place where a peer is made to wait: a function, and by which method of `EngineState` or `Output`."""

    function: str  # with its module: `attempts.start`
    method: str

    def __str__(self) -> str:
        return f"{self.function} {self.method}"


def hold_sites() -> list[HoldSite]:
    """All of them, read from the sources: those of the engine, and the exceptions that protocols and the bridge say."""
    sites: set[tuple[str, str]] = set()
    folders = (state, protocols, bridge)
    for path in [path for folder in folders for path in Path(str(folder.__file__)).parent.rglob("*.py")]:
        if path.stem == "state":
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute):
                    continue
                if node.attr in HOLDS and last_name(node.value) == "state":
                    sites.add((f"{path.stem}.{function.name}", HOLDS[node.attr]))
                elif node.attr == "await_commit" and last_name(node.value) in ("self", "session"):
                    sites.add((f"{path.stem}.{function.name}", "await_commit"))
    return [HoldSite(*site) for site in sorted(sites)]


HOLDS = {
    "concern": "concern",
    "concern_speaker": "concern_speaker",
    "promise": "promise",
    "note": "concern_speaker",
    "note_function": "concern_speaker",
    "note_schedule": "concern_speaker",
}


def last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2].lstrip("_")


@contextmanager
def without(site: HoldSite) -> Iterator[None]:
    """An engine that forgets this one hold."""
    owner: type = Output if site.method == "await_commit" else EngineState
    original = getattr(owner, site.method)

    def forgetful(holder: object, *arguments: object) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == state.__file__:
            frame = frame.f_back
        assert frame is not None
        if f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}" != site.function:
            original(holder, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, site.method, forgetful)
        yield
