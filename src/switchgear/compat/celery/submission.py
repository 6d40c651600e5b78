"""The options of `apply_async` and of `@app.task`, as options of `App`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from switchgear.compat.not_supported import NotSupported

__all__ = ["queue_tags", "rate_of", "seconds_until", "submit_options"]

# Options that say what is so anyway, or that have no meaning without a broker.
_WITHOUT_EFFECT: Final = frozenset(
    {"retry", "retry_policy", "serializer", "compression", "ignore_result", "producer", "connection", "add_to_parent",
     "reply_to", "correlation_id", "publisher", "router", "result_cls", "delivery_mode"}
)  # fmt: skip
_HINTS: Final = {
    "task_id": "the server gives jobs their ids; read the `id` of the result",
    "exchange": "use queue=, which is a tag of workers",
    "routing_key": "use queue=, which is a tag of workers",
    "headers": "pass the values as arguments",
    "soft_time_limit": "it is an option of the task: @app.task(soft_time_limit=...)",
    "group_id": "use group(...)",
    "chord": "use chord(...)",
    "stamped_headers": "pass the values as arguments",
}
DEFAULT_QUEUES: Final = frozenset({"", "celery", "default"})


def submit_options(given: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Options of `task.options` for those of `apply_async`; raises NotSupported."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        match name:
            case "countdown":
                options["delay"] = max(0.0, float(value))
            case "eta":
                options["at"] = _aware(value)
            case "expires":
                options["expires"] = seconds_until(value, now)
            case "priority":
                options["priority"] = _priority(value)
            case "queue":
                options["requires"] = queue_tags(value)
            case "time_limit":
                options["timeout"] = value
            case "shadow":
                options["label"] = str(value)
            case _:
                hint = _HINTS.get(name)
                raise NotSupported(f"apply_async: {name} is not supported" + (f": {hint}" if hint else ""))
    if "at" in options:
        options.pop("delay", None)  # as Celery does
    return options


def seconds_until(expires: float | datetime | timedelta, now: float) -> float:
    """The seconds until a task expires; it is over at once if that is in the past."""
    if isinstance(expires, datetime):
        return max(0.001, _aware(expires).timestamp() - now)
    if isinstance(expires, timedelta):
        return expires.total_seconds()
    return float(expires)


def _aware(moment: datetime) -> datetime:
    """Celery takes a time without a zone for UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _priority(number: int) -> str:
    """The priority for one of 0 to 9, of which 9 is the highest.

    >>> [_priority(number) for number in (0, 3, 4, 6, 7, 9)]
    ['low', 'low', 'normal', 'normal', 'high', 'high']
    """
    return "low" if number <= 3 else "normal" if number <= 6 else "high"


def queue_tags(queue: object) -> list[str]:
    """The tags that a worker needs for jobs of this queue; the default queue needs none."""
    name = str(getattr(queue, "name", queue))
    return [] if name in DEFAULT_QUEUES else [name]


def rate_of(limit: str | float | None) -> tuple[int, float] | None:
    """Celery's rate limits: "10/m", "100/h", or a number for each second.

    >>> rate_of("10/m"), rate_of(5), rate_of("0.5/s"), rate_of(None)
    ((10, 60.0), (5, 1.0), (1, 2.0), None)
    """
    if not limit:
        return None
    count_text, _, unit = str(limit).partition("/")
    seconds = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[unit.strip()]
    count = float(count_text)
    if count == int(count):
        return int(count), seconds
    return 1, seconds / count
