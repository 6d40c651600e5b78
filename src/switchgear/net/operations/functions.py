"""The verbs `functions`, `pause`, `resume`, `limit` and `place`: list functions, and change their settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from switchgear.errors import Refused
from switchgear.json_bytes import plain
from switchgear.model import PRIORITY_NAMES, SECOND_US, Function, ReadyQueue
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps, in_steps
from switchgear.policy import Policy, Rate
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.verbs.answers import FunctionAnswer, LimitAnswer, PauseAnswer, PlaceAnswer, PolicyAnswer

__all__ = ["FunctionOperations", "function_portions", "oldest_ready_seconds", "oldest_ready_us"]

# The oldest ready job is searched for in at most this many key queues.
MOST_QUEUES: Final = 1000
MOST_SECONDS: Final = 10**9  # more than any policy allows, and small enough to be counted in microseconds


class FunctionOperations:
    """The verbs about functions: their queues and limits, and whether their jobs are assigned."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    # --- listing ---

    def functions(self) -> Steps:
        return in_steps(self._function, self._context.functions())

    def _function(self, function: Function) -> FunctionAnswer:
        return {
            "name": plain(function.name),
            "total": function.total,
            "ready": function.ready,
            "ready_by_priority": [
                function.ready_of(priority) if function.ready else 0 for priority in range(len(PRIORITY_NAMES))
            ],
            "running": function.running,
            "waiting_or_scheduled": function.total - function.ready - function.running,
            "workers": self._context.worker_count(function),
            "paused": function.paused,
            "limits": list(function.limits),
            "policy": self._policy(function),
            "keys_waiting": self._keys_waiting(function),
            "submitted": function.submitted,
            "done": function.done,
            "failed": function.failed,
            "cancelled": function.cancelled,
            "expired": function.expired,
            "requeued": function.requeued,
            "dead": function.dead,
            "oldest_ready_seconds": oldest_ready_seconds(function, self._engine.now_us),
        }

    def _policy(self, function: Function) -> PolicyAnswer | None:
        """The limits of the function; `None` if there are none."""
        limiter = function.limiter
        return plain_policy(limiter.policy) if limiter is not None and limiter.policy else None

    def _keys_waiting(self, function: Function) -> int | None:
        """How many keys have ready jobs; `None` if the function does not distinguish keys."""
        limiter = function.limiter
        return limiter.keys_waiting if limiter is not None and limiter.policy.tells_keys_apart else None

    # --- pausing ---

    def pause(self, function: str) -> PauseAnswer:
        named = self._engine.function_named(function.encode())
        self._engine.pause(named)
        return {"function": function, "paused": named.paused}

    def resume(self, function: str) -> PauseAnswer:
        named = self._engine.function_named(function.encode())
        self._engine.resume(named)
        return {"function": function, "paused": named.paused}

    # --- limiting ---

    def limit(
        self,
        function: str,
        concurrency: int | None,
        rate: tuple[int, float] | None,
        key_concurrency: int | None,
        key_rate: tuple[int, float] | None,
        fair: bool | None,
        owner: str | None,
    ) -> LimitAnswer:
        """Set the limits that are given, and return all of them; the others stay, and 0 means no limit."""
        if not function:
            raise ValueError("function is missing: expected a text that is not empty")
        changes: dict[str, Any] = {"concurrency": concurrency, "key_concurrency": key_concurrency, "fair": fair}
        changes = {name: value for name, value in changes.items() if value is not None}
        if rate is not None:
            changes["rate"] = policy_rate(rate)
        if key_rate is not None:
            changes["key_rate"] = policy_rate(key_rate)
        if changes:
            changes["owner"] = owner or ""  # the last who has set them
        known = self._engine.functions.get(function.encode())
        policy = replace(policy_of(known), **changes)  # checks the values
        if changes and (known is not None or policy):  # also if nothing is new: it may not be stored yet
            self._engine.set_policy(self._engine.function_named(function.encode()), policy)
        return {"function": function, "policy": plain_policy(policy)}

    # --- placing ---

    def place(
        self, function: str, beside: str | None, partition: int | None, by_name: bool | None, shards: int | None
    ) -> Steps:
        """Where a function is. A single server has all of them; nodes that own functions answer themselves."""
        yield from ()
        if beside is not None or partition is not None or by_name or shards is not None:
            raise Refused(REFUSED_CONFLICT, "this server has all functions: cluster.mode is not owners")
        answer: PlaceAnswer = {"function": function, "partition": None, "node": None, "placed": False}
        return answer


def some_ready_queues(function: Function) -> Iterator[ReadyQueue]:
    """The same as `Function.ready_queues`, of which there may be very many, one by one."""
    if function.limiter is None:
        yield function
        return
    for group in function.limiter.groups:
        yield group.queue
        if group.key_queues is not None:
            yield from group.key_queues.values()


def function_portions(functions: Sequence[Function], per_step: int) -> Iterator[list[Function]]:
    """Functions in portions for one step each; one with limits may have very many queues, and ends its portion."""
    portion: list[Function] = []
    for function in functions:
        portion.append(function)
        if len(portion) >= per_step or function.limiter is not None:
            yield portion
            portion = []
    if portion:
        yield portion


def oldest_ready_us(function: Function) -> int | None:
    """When the oldest job at the head of a queue was created; if a function has very many keys, of some of its queues.

    `None` if no job is ready.
    """
    if not function.ready:
        return None
    oldest: int | None = None
    for ready_queue in islice(some_ready_queues(function), MOST_QUEUES):
        for queue in ready_queue.queues:
            if queue and (oldest is None or queue[0].created_us < oldest):
                oldest = queue[0].created_us
    return oldest


def oldest_ready_seconds(function: Function, now_us: int) -> float | None:
    """The age of the oldest job at the head of a queue; see `oldest_ready_us`."""
    created_us = oldest_ready_us(function)
    return None if created_us is None else (now_us - created_us) / SECOND_US


def policy_of(function: Function | None) -> Policy:
    return function.limiter.policy if function is not None and function.limiter is not None else Policy()


def policy_rate(rate: tuple[int, float]) -> Rate | None:
    """A rate in the form of a policy, with microseconds; `None` if its count is 0."""
    count, seconds = rate
    return (count, round(max(-1, min(seconds, MOST_SECONDS)) * SECOND_US)) if count else None


def plain_policy(policy: Policy) -> PolicyAnswer:
    """A policy in plain values."""
    answer: PolicyAnswer = {
        "concurrency": policy.concurrency,
        "rate": plain_rate(policy.rate),
        "key_concurrency": policy.key_concurrency,
        "key_rate": plain_rate(policy.key_rate),
        "fair": policy.fair,
    }
    if policy.owner:
        answer["owner"] = policy.owner
    return answer


def plain_rate(rate: Rate | None) -> list[float] | None:
    return [rate[0], rate[1] / SECOND_US] if rate is not None else None
