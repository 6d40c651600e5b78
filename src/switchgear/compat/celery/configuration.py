"""`CeleryConfiguration`: the settings of a Celery app, by new and old names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

__all__ = ["CeleryConfiguration"]

# Names before Celery 4.
_OLD_NAMES: Final = {
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERY_EAGER_PROPAGATES_EXCEPTIONS": "task_eager_propagates",
    "CELERY_DEFAULT_QUEUE": "task_default_queue",
    "CELERY_ENABLE_UTC": "enable_utc",
    "CELERY_IMPORTS": "imports",
    "CELERY_INCLUDE": "include",
    "CELERY_ROUTES": "task_routes",
    "CELERY_TASK_RESULT_EXPIRES": "result_expires",
    "CELERY_TIMEZONE": "timezone",
    "CELERYD_TASK_TIME_LIMIT": "task_time_limit",
}
_DEFAULTS: Final[dict[str, Any]] = {
    "beat_schedule": {},
    "enable_utc": True,
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_default_queue": "celery",
    "task_routes": None,
    "imports": (),
    "include": (),
    "timezone": None,
}


class CeleryConfiguration(dict[str, Any]):
    """Settings as attributes and as items.  Those of brokers, serializers and pools may be set and have no effect."""

    def __init__(self) -> None:
        super().__init__(_DEFAULTS)
        self["beat_schedule"] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the setting {name} is not set") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(_OLD_NAMES.get(name, name.lower()), value)

    def update(self, *given: Any, **named: Any) -> None:
        """Change several settings."""
        for name, value in dict(*given, **named).items():
            self[name] = value

    def read_object(self, source: Any, namespace: str | None) -> None:
        """Take over the settings of a module, class, object or mapping; `namespace` is a prefix of their names."""
        if isinstance(source, str):
            source = _imported(source)
        named = source if isinstance(source, Mapping) else {name: getattr(source, name) for name in dir(source)}
        prefix = f"{namespace.upper()}_" if namespace else ""
        for name, value in named.items():
            if name.startswith("_"):
                continue
            if prefix:
                if name.startswith(prefix):
                    self[name.removeprefix(prefix).lower()] = value
            elif not callable(value) and not _is_module(value):
                self[name] = value

    @property
    def result_seconds(self) -> float | None:
        """How long results are kept; None: as the server does."""
        given = self.get("result_expires")
        if given is None:
            return None
        return given.total_seconds() if isinstance(given, timedelta) else float(given)

    @property
    def timezone_name(self) -> str:
        """The time zone of schedules."""
        return str(self["timezone"] or "UTC")


def _imported(path: str) -> Any:
    """The object at `module:name` or `module.name`, or a module."""
    if ":" in path:
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        if not module:
            raise
        return getattr(import_module(module), name)


def _is_module(value: Any) -> bool:
    return type(value).__name__ == "module"
