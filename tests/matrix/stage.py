"""One server with every listener, and a Redis with its bridge, for all pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pytest

from switchgear.config import ListenUrl
from tests.matrix.addresses import Addresses
from tests.matrix.sides import PAIRS, Capability, Pair
from tests.support.redis_server import RedisServer, running_redis
from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import eventually

__all__ = ["Stage", "function_of", "running_stage"]

# Short where a test waits for the loss of a worker, and nowhere else: a busy machine is slow.
RESEND_SECONDS: Final = 0.5
BUSY_SECONDS: Final = 1
ONE_FUNCTION_ONLY: Final = ("pingpong", "dwork")  # such a listener has jobs of one function


def function_of(pair: Pair, capability: Capability) -> str:
    """A function for each cell; where listeners are for one function, a pair has one for most of its cells."""
    if capability is Capability.DEATH and pair.worker.key in ("pingpong", "redis"):
        # A worker that dies at a Redis stays counted there, so that the bridge would go on pushing jobs to nobody.
        return f"{pair.name}-death"
    if {pair.submitter.key, pair.worker.key} & set(ONE_FUNCTION_ONLY):
        return pair.name
    return f"{pair.name}-{capability}"


@dataclass(frozen=True)
class Stage:
    """What runs while the pairs are tried."""

    server: Server
    redis: RedisServer | None  # None: it is not installed
    listeners: list[ListenUrl]

    def addresses(self, pair: Pair, capability: Capability) -> Addresses:
        function = function_of(pair, capability)
        pingpong = self._listener("pingpong", function)
        dwork = self._listener("dwork", function)
        database = 1 if capability is Capability.DEATH else 0
        return Addresses(
            function=function,
            gearman=f"gearman://{HOST}:{self.server.port}",
            wmp=self._url("wmp"),
            gearmonkey=self._url("gearmonkey").replace("gearmonkey:", "redis:") + "/0",
            redis=f"redis://{HOST}:{self.redis.port}/{database}" if self.redis is not None else "",
            pingpong_clients=f"tcp://{HOST}:{pingpong.port}" if pingpong is not None else "",
            pingpong_workers=f"tcp://{HOST}:{pingpong.option('workers')}" if pingpong is not None else "",
            http=self._url("http"),
            dwork=f"dwork://{HOST}:{dwork.port}" if dwork is not None else "",
        )

    def _listener(self, scheme: str, function: str) -> ListenUrl | None:
        fitting = (url for url in self.listeners if url.scheme == scheme and url.text("function") == function)
        return next(fitting, None)

    def _url(self, scheme: str) -> str:
        url = next(url for url in self.listeners if url.scheme == scheme)
        return f"{scheme}://{HOST}:{url.port}"


def _listeners_of_one_function() -> Iterator[str]:
    cells = ((pair, capability) for pair in PAIRS for capability in Capability)
    wanted = dict.fromkeys(
        (scheme, function_of(pair, capability))
        for pair, capability in cells
        for scheme in ONE_FUNCTION_ONLY
        if scheme in (pair.submitter.key, pair.worker.key)
    )
    for scheme, function in wanted:
        query = f"function={function}"
        if scheme == "pingpong":
            query += "&workers=0"
            if function.endswith("to-pingpong-death"):
                query += f"&resend={RESEND_SECONDS}"
        yield f"{scheme}://{HOST}:0?{query}"


@contextmanager
def running_stage() -> Iterator[Stage]:
    with ExitStack() as harness:
        redis = None
        with suppress(pytest.skip.Exception):  # most pairs can do without
            redis = harness.enter_context(running_redis())
        wanted = [f"wmp://{HOST}:0", f"gearmonkey://{HOST}:0", f"http://{HOST}:0", *_listeners_of_one_function()]
        if redis is not None:
            wanted += [f"redis://{HOST}:{redis.port}/0", f"redis://{HOST}:{redis.port}/1?busy={BUSY_SECONDS}"]
        flags = [flag for url in wanted for flag in ("--listen", url)]
        server = harness.enter_context(running_switchgear(*flags, "--drain-timeout", "0s", "--log-level", "warning"))
        eventually(lambda: "keeping jobs in" in server.output(), "the server says where it listens")
        listening = re.findall(r"^listening on (\S+)$", server.output(), re.MULTILINE)
        yield Stage(server, redis, [ListenUrl.parse(url) for url in listening])
