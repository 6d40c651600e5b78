"""`RedisConnection`: a connection to a Redis or a Redis Cluster; sends commands in batches, and subscribes.

redis-py must not send commands again: whether that is safe depends on the command.
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
from switchgear.net.bridge.settings import RedisLocation

__all__ = ["Command", "Published", "RedisConnection", "RedisConnectionLost"]

Command = tuple[Any, ...]
"""A command. If its second word is a `Script`, the script is run; the number of its keys follows."""

Published = Callable[[bytes, bytes], None]
"""Called with a channel and a message published there."""

ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
GOODBYE_SECONDS: Final = 1.0

# Error codes that do not concern one command alone. These errors pass by themselves, or an operator ends them.
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
_CODED: Final[tuple[type[Exception], ...]] = (  # errors that redis-py raises without their code
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


class RedisConnectionLost(Exception):
    """Redis cannot be reached, or refuses all commands. Commands without an answer may have been executed or not."""


class RedisConnection:
    """A connection to one Redis. After a loss, `connect` makes a new one."""

    def __init__(self, location: RedisLocation) -> None:
        self.location = location
        self.is_cluster = False
        self._plain: redis.asyncio.Redis | None = None
        self._cluster: RedisCluster | None = None
        self._pubsub: Any = None
        self._channels: set[bytes] = set()
        # The nodes of the cluster at the last connection: the given node may have failed, and a replica taken over.
        self._nodes: list[tuple[str, int]] = []

    async def connect(self) -> None:
        """Connect, and find out which kind of Redis this is; raises RedisConnectionLost.

        If the given node does not answer, the other nodes of the cluster are tried.
        """
        first = (self.location.host, self.location.port)
        others = [node for node in self._nodes if node != first]
        try:
            await self._connect_to(*first)
        except RedisConnectionLost as lost:
            for node in others:
                with suppress(RedisConnectionLost):
                    await self._connect_to(*node)
                    return
            raise lost

    async def _connect_to(self, host: str, port: int) -> None:
        await self.close()
        settings = self._settings(host, port)
        plain: Any = redis.asyncio.Redis(db=self.location.database, **settings)
        self._plain = plain
        try:
            info: dict[str, Any] = await plain.execute_command("INFO", "server")
            self.is_cluster = info.get("redis_mode") == "cluster"
            if self.is_cluster:
                self._cluster = RedisCluster(**settings)
                await self._cluster.initialize()
                self._nodes = [(str(node.host), int(node.port)) for node in self._cluster.get_nodes()]
            else:
                await self._load_scripts()
        except _LOST as error:
            raise RedisConnectionLost(_text(error)) from error

    def _settings(self, host: str, port: int) -> dict[str, Any]:
        location = self.location
        settings: dict[str, Any] = {
            "host": host,
            "port": port,
            "username": location.user or None,
            "password": location.password or None,
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_keepalive": True,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        if location.has_tls:
            settings.update(
                ssl=True,
                ssl_ca_certs=location.ca_file or None,
                ssl_certfile=location.cert_file or None,
                ssl_keyfile=location.key_file or None,
                ssl_check_hostname=True,  # not the default of old versions of redis-py
            )
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
        """Send commands in one batch; each gets its answer, or an exception if Redis refuses only this command.

        Raises RedisConnectionLost.
        """
        if not commands:
            return []
        client = self._cluster or self._plain
        if client is None:
            raise RedisConnectionLost("not connected")
        pipeline = client.pipeline(transaction=False)
        try:
            for command in commands:
                pipeline.execute_command(*self._words(command))
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except _LOST as error:
            raise RedisConnectionLost(_text(error)) from error
        for answer in answers:
            if isinstance(answer, Exception) and is_general(answer):
                raise RedisConnectionLost(_text(answer))
        return answers

    def _words(self, command: Command) -> Command:
        script = command[1]
        if not isinstance(script, Script):
            return command
        if self.is_cluster:  # every node would have to have the script loaded
            return ("EVAL", script.text, *command[2:])
        return ("EVALSHA", script.sha, *command[2:])

    # --- published messages ---

    async def subscribe(self, channels: Iterable[bytes]) -> None:
        """Subscribe to exactly these channels; with none, keep the subscription as it is. Raises
        RedisConnectionLost."""
        if self._plain is None:
            raise RedisConnectionLost("not connected")
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
            raise RedisConnectionLost(_text(error)) from error
        self._channels = wanted

    async def listen(self, published: Published) -> None:
        """Pass published messages on until the connection is lost, which raises RedisConnectionLost.

        At least one channel must be subscribed to.
        """
        pubsub = self._pubsub
        try:
            while True:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
                if message is not None:
                    published(message["channel"], message["data"])
        except _LOST as error:
            raise RedisConnectionLost(_text(error)) from error


def is_general(error: Exception) -> bool:
    """Whether an error concerns more than the command that got it."""
    if isinstance(error, _CODED) or not isinstance(error, exceptions.ResponseError | exceptions.DataError):
        return True
    return str(error).partition(" ")[0] in _GENERAL_REFUSALS


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
