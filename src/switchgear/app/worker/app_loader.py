"""Loads the app that a user names on the command line: `module:app`."""

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

_IMPORTERS: Final = ("importlib", "<frozen importlib", os.path.dirname(__file__))


class AppNotFound(ConfigError):
    """The named app cannot be loaded; `files` are the source files that may have to be changed."""

    def __init__(self, text: str, files: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.files = files


def load_app(target: str) -> App:
    """The app called `MODULE:NAME`, or the only one in `MODULE`; raises AppNotFound.

    Modules are looked for in the current directory first, as `python -m` does.
    """
    module_name, _, name = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        form = "MODULE:APP, such as myapp:app or mypackage.tasks:app"
        raise AppNotFound(f'"{target}" is not of the form {form}{_hint(target)}')
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    app = _named(module, name) if name else _only(module)
    app.run_here = False  # the caller runs its jobs
    return app


def _hint(target: str) -> str:
    if target.endswith(".py") or "/" in target:
        path = target.partition(":")[0].removesuffix(".py").strip("./").replace("/", ".")
        return f"; did you mean {path}?" if path else ""
    return ""


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
    from switchgear.app.app import App

    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            apps = _apps_of(module)
            known = f"; it has {', '.join(apps)}" if apps else ""
            raise AppNotFound(f"{module.__name__} has no {name}{known}", _file_of(module))
        found = getattr(found, part)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise AppNotFound(f"{module.__name__}:{name} is not a switchgear.App but a {kind}", _file_of(module))
    return found


def _only(module: ModuleType) -> App:
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise AppNotFound(f"there is no switchgear.App in {module.__name__}", _file_of(module))
    choices = ", ".join(f"{module.__name__}:{name}" for name in apps)
    raise AppNotFound(f"there are several apps in {module.__name__}; say which one: {choices}", _file_of(module))


def _apps_of(module: ModuleType) -> dict[str, App]:
    from switchgear.app.app import App

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _file_of(module: ModuleType) -> tuple[str, ...]:
    return (module.__file__,) if module.__file__ else ()
