"""Adapter to redis-py: connections, errors, and the differences of a Redis Cluster.

Retries. redis-py sends a command again when the connection was lost before the answer came, but Redis may have done it
already: the job would be queued twice, the worker counted twice. So connections made here do not. What to do about a
lost connection depends on the command, and its caller decides.

Timeouts. redis-py stops waiting for an answer after its own timeout, which must be longer than a command blocks:
otherwise it could close the connection of a BRPOP just when Redis answers it with a job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from switchgear.client.gearmonkey.commands import GearMonkeyFunction
from switchgear.client.gearmonkey.redis_url import redis_url
from switchgear.errors import ClientError, ConfigError, ServerRefused, ServerUnreachable
from switchgear.text import without_secrets

__all__ = [
    "RAW",
    "REDIS_ERRORS",
    "AsyncRedis",
    "BlockingRedis",
    "answer_seconds",
    "check_slots",
    "concerns_one_key",
    "connect",
    "connect_async",
    "is_passing",
    "slice_seconds",
    "translated",
]

ANSWER_SECONDS: Final = 30
CONNECT_SECONDS: Final = 10
SLICE_SECONDS: Final = 5
_ASSUMED_ANSWER_SECONDS: Final = 5  # redis-py's own default, which its settings do not show

# Values are bytes, whatever the settings of a given connection are.
RAW: Final[dict[str, Any]] = {NEVER_DECODE: True}

REDIS_ERRORS: Final = (exceptions.RedisError, exceptions.RedisClusterException, OSError)

_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.AuthenticationError, "NOAUTH"),
    (exceptions.AuthorizationError, "NOPERM"),
)

# Refusals that end by themselves, or by the hand of an operator: the same command will work later.
_PASSING_CODES: Final = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "NOSCRIPT",
        "OOM",
        "READONLY",
        "TRYAGAIN",
    }
)

_USE_A_HASH_TAG = (
    "on a Redis Cluster all functions of one worker need one hash tag in their names, such as {media} in "
    "'{media}resize' and '{media}crop'; a function alone may be named '{resize}'"
)
_USE_A_CLUSTER_CLIENT = (
    "this Redis is part of a Redis Cluster: give redis.cluster.RedisCluster.from_url(URL), or for asyncio "
    "redis.asyncio.cluster.RedisCluster.from_url(URL), instead of a URL"
)


class BlockingRedis(Protocol):
    """The methods of `redis.Redis` and `redis.cluster.RedisCluster` that are used here."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class AsyncRedis(Protocol):
    """The methods of their asyncio counterparts that are used here."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]: ...


def connect(url: str) -> redis.Redis:
    """A client of our own; nothing is sent yet. Raises ConfigError."""
    place, security = redis_url(url)
    try:
        return redis.Redis.from_url(place, **_settings(Retry(NoBackoff(), 0)), **security)
    except ValueError as error:
        raise ConfigError(f"the address of the Redis: {without_secrets(str(error), url)}") from None


def connect_async(url: str) -> redis.asyncio.Redis:
    """Connect with asyncio."""
    place, security = redis_url(url)
    try:
        return redis.asyncio.Redis.from_url(place, **_settings(AsyncRetry(NoBackoff(), 0)), **security)
    except ValueError as error:
        raise ConfigError(f"the address of the Redis: {without_secrets(str(error), url)}") from None


def _settings(retry: object) -> dict[str, Any]:
    """Settings for a connection; those in its URL go first."""
    return {
        "retry": retry,
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
    }


def answer_seconds(connection: object) -> float | None:
    """How long a connection waits for an answer; None: for ever."""
    settings: dict[str, Any] = getattr(connection, "get_connection_kwargs", dict)()
    seconds: float | None = settings.get("socket_timeout", _ASSUMED_ANSWER_SECONDS)
    return seconds


def slice_seconds(connection: object) -> float:
    """How long one command of a client may block; whole seconds, if there are some, which every Redis understands."""
    longest = answer_seconds(connection)
    if longest is None or longest / 2 >= SLICE_SECONDS:
        return SLICE_SECONDS
    return int(longest / 2) or longest / 2


def check_slots(connection: object, functions: Sequence[GearMonkeyFunction]) -> None:
    """On a cluster, all queues that one command names have to be in one slot; raises ServerRefused."""
    if not isinstance(connection, RedisCluster | AsyncRedisCluster):
        return
    if len({key_slot(key) for function in functions for key in function.lists}) > 1:
        names = ", ".join(repr(function.name) for function in functions)
        raise ServerRefused("CROSSSLOT", f"the queues of {names} are in different places: {_USE_A_HASH_TAG}")


def translated(error: Exception) -> ClientError:
    """An error of redis-py as one of ours."""
    code = _code(error)
    if code is None:
        return ServerUnreachable(f"Redis cannot be reached: {error}")
    if code == "CROSSSLOT":
        return ServerRefused(code, f"{error}: {_USE_A_HASH_TAG}")
    if code in ("MOVED", "ASK"):
        return ServerRefused(code, _USE_A_CLUSTER_CLIENT)
    return ServerRefused(code, str(error).removeprefix(code).lstrip())


def _code(error: Exception) -> str | None:
    """The first word of Redis's answer, some of which redis-py has made into classes; None: there was no answer."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if not isinstance(error, exceptions.ResponseError | exceptions.DataError):
        return None
    word = str(error).partition(" ")[0]
    return word if word.isupper() and word.isalpha() else "ERR"


def is_passing(error: ClientError) -> bool:
    """Whether the same command may work later."""
    if isinstance(error, ServerRefused):
        return error.code in _PASSING_CODES
    return isinstance(error, ServerUnreachable)


def concerns_one_key(error: ClientError) -> bool:
    """Whether the key of one job holds a value of another type; other jobs are not affected."""
    return isinstance(error, ServerRefused) and error.code == "WRONGTYPE"
