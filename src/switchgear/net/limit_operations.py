"""How many jobs of a function may run, as an operator, or a worker that declares its functions, asks for it.

`limit` {function, concurrency, rate, key_concurrency, key_rate, fair} sets what is given and leaves the rest as it was;
0 is no limit.  A rate is an array of a count and a number of seconds.  With nothing but the function it only tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final, Protocol

from switchgear.model import SECOND_US, Function
from switchgear.net.hub import Hub
from switchgear.net.values import encoded, whole
from switchgear.policy import Policy, Rate

__all__ = ["LimitOperations", "plain_policy"]

MOST_SECONDS: Final = 10**9  # more than any policy takes, and few enough to be counted in microseconds


class Office(Protocol):
    """What is needed of the other operations."""

    hub: Hub


class LimitOperations:
    """The verb `limit`."""

    def __init__(self, office: Office) -> None:
        self._engine = office.hub.engine

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {"limit": self.limit}

    def limit(
        self,
        function: str | None = None,
        concurrency: int | None = None,
        rate: object = None,
        key_concurrency: int | None = None,
        key_rate: object = None,
        fair: bool | None = None,
    ) -> dict[str, Any]:
        """Set limits of a function, and tell what they are now."""
        name = encoded(function)
        if not name:
            raise ValueError("function is missing")
        changes: dict[str, Any] = {}
        if concurrency is not None:
            changes["concurrency"] = whole(concurrency)
        if rate is not None:
            changes["rate"] = rate_of(rate, "rate")
        if key_concurrency is not None:
            changes["key_concurrency"] = whole(key_concurrency)
        if key_rate is not None:
            changes["key_rate"] = rate_of(key_rate, "key_rate")
        if fair is not None:
            changes["fair"] = fair
        known = self._engine.functions.get(name)
        policy = replace(policy_of(known), **changes)  # checks the values
        if policy != policy_of(known):
            self._engine.set_policy(self._engine.function_named(name), policy)
        return {"function": function, "policy": plain_policy(policy)}


def policy_of(function: Function | None) -> Policy:
    return function.gate.policy if function is not None and function.gate is not None else Policy()


def plain_policy(policy: Policy) -> dict[str, Any]:
    """A policy in plain values."""
    return {
        "concurrency": policy.concurrency,
        "rate": plain_rate(policy.rate),
        "key_concurrency": policy.key_concurrency,
        "key_rate": plain_rate(policy.key_rate),
        "fair": policy.fair,
    }


def plain_rate(rate: Rate | None) -> list[float] | None:
    return [rate[0], rate[1] / SECOND_US] if rate is not None else None


def rate_of(value: object, name: str) -> Rate | None:
    """A rate out of a stranger's JSON; raises ValueError."""
    if value == 0 and type(value) is int:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{name} is an array of a count and a number of seconds, or 0, not {value!r}")
    count, seconds = value
    if type(count) is not int or type(seconds) not in (int, float) or not abs(seconds) < inf:
        raise ValueError(f"{name} is an array of a count and a number of seconds, not {value!r}")
    return (count, round(max(-1, min(seconds, MOST_SECONDS)) * SECOND_US)) if count else None
