"""`TaskRequests`: the requests that submit jobs of a task, made of its options and their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.chosen_values import ChosenValues, short_key, shortened_label
from switchgear.app.predecessors import predecessor_policies
from switchgear.app.task_options import TaskOptions
from switchgear.client.gearman.submit_request import SubmitRequest

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["TaskRequests", "schedule_options"]

_DEFAULTS: Final = TaskOptions()


class TaskRequests:
    """Makes the requests for jobs of one task with certain options."""

    def __init__(self, task: Task[..., Any], declared: TaskOptions, previous: TaskRequests | None = None) -> None:
        """`declared` are the options that the workers know; `previous` is for the same task with other options.

        Raises TypeError, as `ChosenValues` does.
        """
        self._task = task
        self._settings = task.settings
        self.arguments = task.arguments
        checked = previous.chosen_values if previous is not None else None
        self.chosen_values: ChosenValues = ChosenValues(task.name, task.arguments, task.settings, checked)
        self._needs = _options_that_need_a_switchgear_server(task.settings, declared)

    def request_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, watch: bool = True, trace: str = ""
    ) -> SubmitRequest:
        """The request that submits a job with these arguments; `trace` is that of `Task.sending`."""
        hooks = self._task.app.hooks
        if hooks.middleware:
            task, on_outcome = hooks.prepared(self._task, args, dict(kwargs))
            request = task.requests.without_middleware(args, kwargs, watch=watch, trace=trace)
            request.on_outcome = on_outcome
            return request
        return self.without_middleware(args, kwargs, watch=watch, trace=trace)

    def without_middleware(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, watch: bool, trace: str
    ) -> SubmitRequest:
        """The request for arguments and options that have passed the middleware."""
        by_name = self.arguments.bind(args, kwargs)
        payload = self.arguments.encode_bound(by_name)
        settings = self._settings
        now = self._task.app.now()
        options = self._json_options(by_name, payload, now)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        return SubmitRequest(
            function=self._task.name.encode(),
            unique=self.chosen_values.unique_key(by_name),
            payload=self._wrapped(payload),
            priority=settings.priority,
            durable=settings.durable,
            watch=watch,
            run_at=settings.at if settings.at is not None else now + settings.delay if settings.delay else 0.0,
            options=options,
            needs=self._needs if b'"$job"' not in payload else self._needs_with_references(payload),
        )

    def alike_request(self, trace: str) -> SubmitRequest | None:
        """A request that all jobs of this task share apart from their payloads and edges; None if they share none."""
        if not self._is_alike():
            return None
        settings = self._settings
        options = schedule_options(settings)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        function = self._task.name.encode()
        return SubmitRequest(function, b"", b"", settings.priority, settings.durable, False, 0.0, options, self._needs)

    def request_like(self, alike: SubmitRequest, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> SubmitRequest:
        """The request for a job with these arguments, of which `alike_request` has given the rest."""
        payload, handles = self.arguments.encode_with_references(self.arguments.bind(args, kwargs))
        options, needs = alike.options, alike.needs
        if handles:
            options = {**options, "after": handles, "on_failure": [self._settings.on_failure] * len(handles)}
            needs = (*needs, "a job as an argument")
        function, priority, durable = alike.function, alike.priority, alike.durable
        return SubmitRequest(function, self._wrapped(payload), b"", priority, durable, False, 0.0, options, needs)

    def for_rows(self, rows: Iterable[tuple[Any, ...]], *, watch: bool, trace: str) -> Iterator[SubmitRequest]:
        """The requests for rows of arguments."""
        if self._is_alike():
            return self._alike(rows, watch, trace)
        return (self.request_for(row, {}, watch=watch, trace=trace) for row in rows)

    def _is_alike(self) -> bool:
        """Whether jobs of this task differ only in their payloads, unless jobs are among their arguments."""
        settings = self._settings
        if self._task.app.hooks.middleware:
            return False
        of_its_own = settings.unique or settings.key is not None or settings.after or settings.expires is not None
        of_its_own = of_its_own or settings.label is not None
        return not (of_its_own or settings.at is not None or settings.delay)

    def _alike(self, rows: Iterable[tuple[Any, ...]], watch: bool, trace: str) -> Iterator[SubmitRequest]:
        """Requests that differ only in their payloads."""
        bind, encode_bound, function = self.arguments.bind, self.arguments.encode_bound, self._task.name.encode()
        settings, needs = self._settings, self._needs
        priority, durable, options = settings.priority, settings.durable, schedule_options(settings)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        for row in rows:
            payload = encode_bound(bind(row, {}))
            if b'"$job"' in payload:
                yield self.request_for(row, {}, watch=watch, trace=trace)
            else:
                yield SubmitRequest(
                    function, self._wrapped(payload), b"", priority, durable, watch, 0.0, options, needs
                )

    def _wrapped(self, payload: bytes) -> bytes:
        """The payload as the app's `PayloadCodec` have it."""
        payloads = self._task.app.payloads
        if payloads is None:
            return payload
        return payloads.wrap(payload, self._task.name, self.arguments.references(payload))

    def _json_options(self, by_name: Mapping[str, Any], payload: bytes, now: float) -> dict[str, Any]:
        """The JSON options of SUBMIT_JOB_OPTIONS; see `switchgear.job_options`."""
        settings = self._settings
        options: dict[str, Any] = schedule_options(settings)
        if settings.expires is not None:
            options["expires_at"] = now + settings.expires
        if settings.key is not None:
            key = self.chosen_values.chosen("key", by_name)
            if key is not None:
                options["key"] = short_key(key).decode()
        if settings.label is not None:
            label = self.chosen_values.chosen("label", by_name)
            if label is not None:
                options["label"] = shortened_label(label)
        if settings.unique:
            options["unique_scope"] = settings.unique_scope
            options["unique_policy"] = settings.unique_policy
            if settings.unique_for is not None:
                options["unique_for"] = settings.unique_for
        if settings.after or b'"$job"' in payload:
            policies = self._policies(payload)
            options["after"] = list(policies)
            options["on_failure"] = list(policies.values())
        return options

    def _policies(self, payload: bytes) -> dict[str, str]:
        """Handles of the predecessors, and the policy for each if it does not succeed."""
        references = self.arguments.references(payload)
        return predecessor_policies(self._task.app, self._task.name, self._settings, references)

    def _needs_with_references(self, payload: bytes) -> tuple[str, ...]:
        has_any = bool(self.arguments.references(payload))
        return (*self._needs, "a job as an argument") if has_any else self._needs


def _options_that_need_a_switchgear_server(settings: TaskOptions, declared: TaskOptions) -> tuple[str, ...]:
    """The names of the options that need a Switchgear server, as users write them."""
    needs = [
        name
        for name in ("retries", "crash_limit", "expires", "retention", "key", "label", "requires", "after")
        if getattr(settings, name) != getattr(_DEFAULTS, name)
    ]
    if settings.timeout != declared.timeout:
        needs.append("timeout")  # that of the task itself its workers see to
    if settings.unique:
        names = ("unique_scope", "unique_for", "unique_policy")
        needs += [name for name in names if getattr(settings, name) != getattr(_DEFAULTS, name)]
    return tuple(needs)


def schedule_options(settings: TaskOptions) -> dict[str, Any]:
    """The options of the jobs that a schedule of this task makes."""
    options: dict[str, Any] = {"attempts_limit": settings.attempts, "crash_limit": settings.crash_limit}
    if settings.timeout is not None:
        options["timeout"] = settings.timeout
    if settings.retention is not None:
        options["retention"] = settings.retention
    if settings.requires:
        options["requires"] = list(settings.requires)
    return options
