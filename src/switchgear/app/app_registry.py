"""The apps of this process, the default app, and tasks that were declared without an app."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["AppRegistry", "the_apps"]


class AppRegistry:
    """Knows the apps of a process as long as they are used, and which of them the shared tasks belong to."""

    def __init__(self) -> None:
        self._apps: WeakSet[App] = WeakSet()
        self._default: ref[App] | None = None
        self._unbound: list[Task[Any, Any]] = []  # shared tasks that have no app yet
        self._lock = threading.Lock()

    def add(self, app: App) -> None:
        """Register an app of this process."""
        with self._lock:
            self._apps.add(app)

    def has_other_named(self, app: App) -> bool:
        """Whether another app has the same name."""
        with self._lock:
            return any(other.name == app.name for other in self._apps if other is not app)

    def set_default(self, app: App) -> None:
        """Let shared tasks that have no app yet belong to this one."""
        self._default = ref(app)

    def default_app(self) -> App:
        """The app that shared tasks belong to: the only one, or the one that was chosen; raises ConfigError."""
        chosen = self._default() if self._default is not None else None
        if chosen is not None:
            return chosen
        with self._lock:
            apps = sorted(self._apps, key=repr)
        if len(apps) == 1:
            return apps[0]
        if not apps:
            raise ConfigError("a shared task needs an app: make one, in a module that is imported before it is used")
        shown = ", ".join(repr(app) for app in apps)
        raise ConfigError(f"a shared task needs one app, and there are several: {shown}; app.set_default() chooses one")

    def add_shared(self, task: Task[Any, Any]) -> None:
        """Know a task that was declared without an app."""
        with self._lock:
            self._unbound.append(task)

    def bind_shared(self, app: App) -> None:
        """Give the shared tasks that have no app yet to this app if it is the default; raises ValueError if it has
        another task of that name."""
        if not self._unbound or self._default_or_none() is not app:
            return
        with self._lock:
            unbound, self._unbound = self._unbound, []
        for task in unbound:
            app.adopt(task)

    def has_unbound(self) -> bool:
        """Whether there are shared tasks without an app."""
        return bool(self._unbound)

    def _default_or_none(self) -> App | None:
        try:
            return self.default_app()
        except ConfigError:
            return None


the_apps = AppRegistry()  # one for each process, because modules that declare tasks know no other place
