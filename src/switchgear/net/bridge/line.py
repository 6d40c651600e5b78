"""The connection to a Redis or a Redis Cluster: commands in batches, and what is published.

Nothing is sent again by redis-py: what to do about a command without an answer depends on the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import redis.asyncio
from redis import exceptions
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from switchgear.net.bridge.scripts import SCRIPTS, Script
from switchgear.net.bridge.setup import Place

__all__ = ["Command", "Line", "LineLost", "Published"]

Command = tuple[Any, ...]
"""A command; where its second word is a `Script`, that is run, with the number of its keys after it."""

Published = Callable[[bytes, bytes], None]
"""Is called with a channel and what was said there."""

ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
GOODBYE_SECONDS: Final = 1.0

# Refusals that are not about one command.  They end by themselves, or by the hand of an operator.
_GENERAL_REFUSALS: Final = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOAUTH",
        "NOPERM",
        "NOREPLICAS",
        "NOSCRIPT",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "WRONGPASS",
    }
)
_CODED: Final[tuple[type[Exception], ...]] = (  # which redis-py tells of without their code
    exceptions.NoScriptError,
    exceptions.ReadOnlyError,
    exceptions.NoPermissionError,
    exceptions.OutOfMemoryError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
)
_LOST: Final = (exceptions.RedisError, exceptions.RedisClusterException, OSError, asyncio.TimeoutError)


class LineLost(Exception):
    """Redis cannot be reached, or does nothing for anybody now.  What was sent may have been done or not."""


class Line:
    """A way to one Redis.  After it was lost, `connect` makes a new one."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_cluster = False
        self._plain: redis.asyncio.Redis | None = None
        self._cluster: RedisCluster | None = None
        self._pubsub: Any = None
        self._channels: set[bytes] = set()

    async def connect(self) -> None:
        """Connect anew, and see what kind of Redis is there; raises LineLost."""
        await self.close()
        settings = self._settings()
        plain: Any = redis.asyncio.Redis(db=self.place.database, **settings)
        self._plain = plain
        try:
            info: dict[str, Any] = await plain.execute_command("INFO", "server")
            self.is_cluster = info.get("redis_mode") == "cluster"
            if self.is_cluster:
                self._cluster = RedisCluster(**settings)
                await self._cluster.initialize()
            else:
                await self._load_scripts()
        except _LOST as error:
            raise LineLost(_text(error)) from error

    def _settings(self) -> dict[str, Any]:
        place = self.place
        settings: dict[str, Any] = {
            "host": place.host,
            "port": place.port,
            "username": place.user or None,
            "password": place.password or None,
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_keepalive": True,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        if place.has_tls:
            settings.update(ssl=True, ssl_ca_certs=place.ca_file or None)
        return settings

    async def _load_scripts(self) -> None:
        assert self._plain is not None
        pipeline = self._plain.pipeline(transaction=False)
        for script in SCRIPTS.all():
            pipeline.execute_command("SCRIPT LOAD", script.text)
        await pipeline.execute()

    async def close(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        plain, self._plain = self._plain, None
        cluster, self._cluster = self._cluster, None
        self._channels = set()
        for part in (pubsub, cluster, plain):
            if part is not None:
                with suppress(*_LOST):
                    async with asyncio.timeout(GOODBYE_SECONDS):
                        await part.aclose()

    # --- commands ---

    async def call_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send these in one go; each has its answer, or an exception if Redis refuses just this one.

        Raises LineLost.
        """
        if not commands:
            return []
        client = self._cluster or self._plain
        if client is None:
            raise LineLost("not connected")
        pipeline = client.pipeline(transaction=False)
        try:
            for command in commands:
                pipeline.execute_command(*self._words(command))
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except _LOST as error:
            raise LineLost(_text(error)) from error
        for answer in answers:
            if isinstance(answer, Exception) and is_general(answer):
                raise LineLost(_text(answer))
        return answers

    def _words(self, command: Command) -> Command:
        script = command[1]
        if not isinstance(script, Script):
            return command
        if self.is_cluster:  # where each node would have to know the script
            return ("EVAL", script.text, *command[2:])
        return ("EVALSHA", script.sha, *command[2:])

    # --- what is published ---

    async def subscribe(self, channels: Iterable[bytes]) -> None:
        """Listen to exactly these, unless there are none; raises LineLost."""
        if self._plain is None:
            raise LineLost("not connected")
        wanted = set(channels) or self._channels
        new, old = wanted - self._channels, self._channels - wanted
        try:
            if new:
                if self._pubsub is None:
                    self._pubsub = self._plain.pubsub()
                await self._pubsub.subscribe(*new)
            if old:
                await self._pubsub.unsubscribe(*old)
        except _LOST as error:
            raise LineLost(_text(error)) from error
        self._channels = wanted

    async def listen(self, published: Published) -> None:
        """Pass on what is published, until the line is lost; there must be a channel already.  Raises LineLost."""
        pubsub = self._pubsub
        try:
            while True:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
                if message is not None:
                    published(message["channel"], message["data"])
        except _LOST as error:
            raise LineLost(_text(error)) from error


def is_general(error: Exception) -> bool:
    """Whether a refusal is not about the command."""
    if isinstance(error, _CODED) or not isinstance(error, exceptions.ResponseError | exceptions.DataError):
        return True
    return str(error).partition(" ")[0] in _GENERAL_REFUSALS


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
