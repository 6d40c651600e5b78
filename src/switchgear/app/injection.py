"""Dependency injection for tasks: resources (`@app.resource`), opened once for each process or for each job."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import typing
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from switchgear.errors import ConfigError

__all__ = ["INJECTED", "AppResources", "Scope", "injected_parameters"]

Scope: TypeAlias = Literal["process", "job"]
SCOPES: Final = ("process", "job")


class _Injected:
    """The type of `INJECTED`."""

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final[Any] = _Injected()
"""The default of a parameter that is a resource of the app, and not an argument: `db: Database = INJECTED`."""


def injected_parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters whose default is `INJECTED`."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.default is INJECTED]


@dataclass(frozen=True, slots=True)
class ResourceDefinition:
    """A resource: the function that opens it, and the resources that the function needs."""

    kind: Any
    open: Callable[..., Any]
    scope: str
    is_async: bool
    is_context: bool  # it yields its value, and closes it afterwards
    needs: Mapping[str, Any]  # types by parameter


class AppResources:
    """The resources of an app, and those that are open in this process."""

    def __init__(self) -> None:
        self._definitions: dict[Any, ResourceDefinition] = {}
        self._lock = threading.RLock()
        self._open: dict[Any, Any] = {}
        self._stack = ExitStack()
        self._process_id = os.getpid()
        # Asynchronous resources belong to the event loop that they were opened in.
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopResources] = WeakKeyDictionary()

    def define(self, function: Callable[..., Any], scope: str) -> None:
        """Define a resource by the function that opens it; raises TypeError or ValueError."""
        if scope not in SCOPES:
            raise ValueError(f"scope is one of {', '.join(SCOPES)}, not {scope!r}")
        hints = typing.get_type_hints(function)
        name = getattr(function, "__qualname__", repr(function))
        if "return" not in hints:
            raise TypeError(f"resource {name}: tasks find a resource by its type, so say what it returns or yields")
        is_context = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        kind = get_args(hints["return"])[0] if is_context and get_args(hints["return"]) else hints["return"]
        needs = {parameter: hints.get(parameter, Any) for parameter in inspect.signature(function).parameters}
        is_async = inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)
        self._definitions[_key(kind)] = ResourceDefinition(_key(kind), function, scope, is_async, is_context, needs)

    def check(self, task: str, kinds: Mapping[str, Any], *, is_async: bool) -> None:
        """Raise ConfigError if the app has no such resources, or asynchronous ones for a plain function."""
        for parameter, kind in kinds.items():
            self._definition(kind, f"{task}: {parameter}", is_async=is_async)

    def _definition(self, kind: Any, who: str, *, is_async: bool) -> ResourceDefinition:
        found = self._definitions.get(_key(kind))
        if found is None:
            name = getattr(kind, "__qualname__", kind)
            raise ConfigError(f"{who} is to be a {name}, and the app has no such resource (@app.resource)")
        if found.is_async and not is_async:
            raise ConfigError(f"{who} needs an asynchronous resource, which only coroutine functions can be given")
        return found

    # --- for plain functions ---

    def values(self, task: str, kinds: Mapping[str, Any], stack: ExitStack) -> dict[str, Any]:
        """The resources for one attempt; those of the job are closed with the stack."""
        of_job: dict[Any, Any] = {}
        return {name: self._value(kind, f"{task}: {name}", of_job, stack) for name, kind in kinds.items()}

    def _value(self, kind: Any, who: str, of_job: dict[Any, Any], stack: ExitStack) -> Any:
        definition = self._definition(kind, who, is_async=False)
        if definition.scope == "job":
            if definition.kind not in of_job:
                of_job[definition.kind] = self._opened(definition, of_job, stack)
            return of_job[definition.kind]
        with self._lock:  # so that it is opened once, however many threads want it
            self._forget_after_fork()
            if definition.kind not in self._open:
                self._open[definition.kind] = self._opened(definition, {}, self._stack)
            return self._open[definition.kind]

    def _opened(self, definition: ResourceDefinition, of_job: dict[Any, Any], stack: ExitStack) -> Any:
        name = definition.open.__qualname__
        self._refuse_shorter(definition)
        needed = {
            parameter: self._value(kind, f"resource {name}: {parameter}", of_job, stack)
            for parameter, kind in definition.needs.items()
        }
        if definition.is_context:
            return stack.enter_context(contextmanager(definition.open)(**needed))
        return definition.open(**needed)

    def _refuse_shorter(self, definition: ResourceDefinition) -> None:
        """Raise ConfigError if a resource of the process needs one of a job, which ends before it."""
        for kind in definition.needs.values():
            needed = self._definitions.get(_key(kind))
            if definition.scope == "process" and needed is not None and needed.scope == "job":
                raise ConfigError(f"resource {definition.open.__qualname__} is for the process, and needs one of a job")

    def _forget_after_fork(self) -> None:
        if os.getpid() != self._process_id:  # what the parent has open is the parent's
            self._process_id = os.getpid()
            self._open, self._stack = {}, ExitStack()

    def close(self) -> None:
        """Close the resources of the process, the last first."""
        with self._lock:
            self._forget_after_fork()
            stack, self._stack, self._open = self._stack, ExitStack(), {}
        stack.close()

    # --- for coroutine functions ---

    async def values_async(self, task: str, kinds: Mapping[str, Any], stack: AsyncExitStack) -> dict[str, Any]:
        """`values` for an attempt in an event loop; plain resources of the process are shared with threads."""
        of_job: dict[Any, Any] = {}
        return {name: await self._value_async(kind, f"{task}: {name}", of_job, stack) for name, kind in kinds.items()}

    async def _value_async(self, kind: Any, who: str, of_job: dict[Any, Any], stack: AsyncExitStack) -> Any:
        definition = self._definition(kind, who, is_async=True)
        if definition.scope == "job":
            if definition.kind not in of_job:
                of_job[definition.kind] = await self._opened_async(definition, of_job, stack)
            return of_job[definition.kind]
        if not definition.is_async:
            return self._value(kind, who, {}, ExitStack())
        loop = asyncio.get_running_loop()
        opened = self._loops.setdefault(loop, _LoopResources())
        async with opened.lock:
            if definition.kind not in opened.values:
                opened.values[definition.kind] = await self._opened_async(definition, {}, opened.stack)
        return opened.values[definition.kind]

    async def _opened_async(self, definition: ResourceDefinition, of_job: dict[Any, Any], stack: AsyncExitStack) -> Any:
        name = definition.open.__qualname__
        self._refuse_shorter(definition)
        needed = {
            parameter: await self._value_async(kind, f"resource {name}: {parameter}", of_job, stack)
            for parameter, kind in definition.needs.items()
        }
        if definition.is_async and definition.is_context:
            return await stack.enter_async_context(asynccontextmanager(definition.open)(**needed))
        if definition.is_async:
            return await definition.open(**needed)
        if definition.is_context:
            return stack.enter_context(contextmanager(definition.open)(**needed))
        return definition.open(**needed)

    async def close_loop(self) -> None:
        """Close the asynchronous resources of the running event loop, the last first."""
        opened = self._loops.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.stack.aclose()


class _LoopResources:
    """The resources that are open in one event loop."""

    def __init__(self) -> None:
        self.lock = _LoopLock()
        self.values: dict[Any, Any] = {}
        self.stack = AsyncExitStack()


class _LoopLock:
    """A lock of one event loop that the same task may take again, for a resource that needs another."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0

    async def __aenter__(self) -> None:
        current = asyncio.current_task()
        if self._owner is not current:
            await self._lock.acquire()
            self._owner = current
        self._depth += 1

    async def __aexit__(self, *exc: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()


def _key(kind: Any) -> Any:
    """The type by which a resource is found: without its parameters, if it cannot be compared with them."""
    return get_origin(kind) if get_origin(kind) is not None and not isinstance(kind, type) else cast(Any, kind)
