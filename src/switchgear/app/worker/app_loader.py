"""Loads the app that a user names on the command line: `module:app`, or a package that has one.

The modules that the app includes or discovers are imported with it, and for a package all its modules `tasks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["AppNotFound", "load_app"]

# The modules of a package in which its app is looked for.
APP_MODULES: Final = ("app", "tasks", "worker", "jobs", "main")

_IMPORTERS: Final = ("importlib", "<frozen importlib", os.path.dirname(__file__))


class AppNotFound(ConfigError):
    """The named app cannot be loaded; `files` are the source files that may have to be changed."""

    def __init__(self, text: str, files: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.files = files


def load_app(target: str) -> App:
    """The app called `MODULE:NAME`, or the only one in `MODULE`, with all its tasks; raises AppNotFound.

    `MODULE` may be a package: then the app may be in its modules `app`, `tasks` and others, and the modules `tasks` of
    the package and of those within it are imported.  Modules are looked for in the current directory first, as
    `python -m` does.
    """
    module_name, _, name = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        form = "MODULE:APP, such as myapp:app or mypackage.tasks:app"
        raise AppNotFound(f'"{target}" is not of the form {form}{_hint(target)}')
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    is_package = hasattr(module, "__path__")
    app = _named(module, name) if name else _of_package(module) if is_package else _only(module)
    app.run_here = False  # the caller runs its jobs
    _load_tasks(app, module_name if is_package and not name else "")
    return app


def _load_tasks(app: App, package: str) -> None:
    """Import the modules in which tasks of the app are declared."""
    from switchgear.app.app_registry import the_apps
    from switchgear.app.task_modules import task_modules

    try:
        modules = [*app.include, *(found for name in app.discover for found in task_modules(name))]
        modules += task_modules(package) if package else []
    except ConfigError as error:
        raise AppNotFound(str(error)) from error
    for name in dict.fromkeys(modules):
        _import(name)
    if modules and the_apps.has_unbound() and not app.tasks:
        the_apps.default_app()  # raises the error that says what to do


def _of_package(package: ModuleType) -> App:
    """The app of a package: its own, or that of one of its modules with a usual name."""
    if _apps_of(package):
        return _only(package)
    usual = [f"{package.__name__}.{name}" for name in APP_MODULES]
    found = [name for name in usual if importlib.util.find_spec(name) is not None]
    for name in found:
        module = _import(name)
        if _apps_of(module):
            return _only(module)
    looked = f" nor in {', '.join(found)}" if found else f"; the usual place is {usual[0]}"
    raise AppNotFound(f"there is no switchgear.App in {package.__name__}{looked}", _file_of(package))


def _hint(target: str) -> str:
    path = target.partition(":")[0].removesuffix(".py").strip("./").replace("/", ".")
    wrong = next((part for part in path.split(".") if part and not part.isidentifier()), "")
    if wrong:
        return f"; Python cannot import a module called {wrong}: give it a name of letters, digits and _"
    return f"; did you mean {path}?" if path and (target.endswith(".py") or "/" in target) else ""


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise AppNotFound(f"there is no module {error.name} in {os.getcwd()} or on Python's path") from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> AppNotFound:
    """The error for a module that cannot be imported, with the user's part of the traceback."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and any(part in trace.tb_frame.f_code.co_filename for part in _IMPORTERS):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    files = {frame.filename for frame in traceback.extract_tb(trace)}
    if isinstance(error, SyntaxError) and error.filename:
        files.add(error.filename)
    return AppNotFound(f"{name} cannot be imported:\n{text}", tuple(sorted(files)))


def _named(module: ModuleType, name: str) -> App:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            apps = _apps_of(module)
            known = f"; it has {', '.join(apps)}" if apps else ""
            raise AppNotFound(f"{module.__name__} has no {name}{known}", _file_of(module))
        found = getattr(found, part)
    app = _as_app(found)
    if app is None:
        kind = type(found).__name__
        raise AppNotFound(f"{module.__name__}:{name} is not a switchgear.App but a {kind}", _file_of(module))
    return app


def _only(module: ModuleType) -> App:
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise AppNotFound(f"there is no switchgear.App in {module.__name__}", _file_of(module))
    choices = ", ".join(f"{module.__name__}:{name}" for name in apps)
    raise AppNotFound(f"there are several apps in {module.__name__}; say which one: {choices}", _file_of(module))


def _apps_of(module: ModuleType) -> dict[str, App]:
    found = {name: _as_app(value) for name, value in vars(module).items()}
    return {name: app for name, app in found.items() if app is not None}


def _as_app(value: object) -> App | None:
    """The value if it is an app, or the app of an object of a compatibility layer (`switchgear.compat`)."""
    from switchgear.app.app import App

    if isinstance(value, App):
        return value
    app_of = getattr(type(value), "__switchgear_app__", None)
    app = app_of(value) if app_of is not None else None
    return app if isinstance(app, App) else None


def _file_of(module: ModuleType) -> tuple[str, ...]:
    return (module.__file__,) if module.__file__ else ()
