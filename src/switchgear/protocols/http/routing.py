"""`Route` and `Router`: the rows of the route table, and how a request is matched to a row.

`routes.ROUTES` has the rows.  Dispatch, roles and the OpenAPI document are made from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from switchgear.numbers import real_number, whole_number
from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.messages import HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem, field_problem
from switchgear.verbs.access import Role
from switchgear.verbs.kinds import ArgumentKind, Boolean, HandleList, Number, Whole, WordList

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = [
    "AnswerCounts",
    "BodyKind",
    "QueryParameter",
    "Route",
    "RouteAnswer",
    "RouteCall",
    "RouteEntry",
    "RoutePlan",
    "Router",
    "TargetPattern",
    "replace_cursor",
]

MOST_PARAMETERS: Final = 50
# Python's functions take these for what they look like, which would be another name than the peer meant.
BAD_ESCAPE: Final = re.compile(rb"%(?![0-9a-fA-F]{2})")
BAD_ESCAPE_TEXT: Final = "a percent sign is followed by two hexadecimal digits"
TRUE_WORDS: Final = ("1", "true", "yes", "")
FALSE_WORDS: Final = ("0", "false", "no")
NOTHING_GIVEN: Final[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of the query, after the question mark."""

    name: str
    kind: ArgumentKind
    help: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class BodyKind:
    """What the body of a request is: JSON of a type, or bytes of some media type."""

    media: str
    json: Any = None  # the type, for `application/json` and for each line of NDJSON
    is_required: bool = True
    most_bytes: int = 0  # if it is shorter than `limits.packet_bytes` permits and is not one JSON value, which is, too
    longer_with: str = ""  # a parameter with which this does not hold


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """One answer that a request can get."""

    status: int
    help: str
    json: Any = None  # the type of a JSON body
    media: str = ""  # of another body; empty for none
    headers: Mapping[str, str] = field(default_factory=dict)  # with what they say


@dataclass(frozen=True, slots=True)
class Route:
    """One row: a method and a path, what may be sent, and what comes back.  Errors are problems, and not listed."""

    method: str
    path: str  # with the names of what varies in braces
    roles: frozenset[Role]  # any of them is enough
    summary: str  # a sentence
    handler: Callable[[HttpSession, RouteCall], None]
    answers: tuple[RouteAnswer, ...]
    query: tuple[QueryParameter, ...] = ()
    body: BodyKind | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # of the request that mean something here
    tag: str = ""  # the chapter of the documentation
    is_public: bool = False  # it needs no identity
    # It concerns only functions that the identity may use, or none. Without this, and without a function or a job in
    # the path, an identity that is restricted to some functions is refused.
    is_scoped: bool = False

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]

    @property
    def has_json(self) -> bool:
        """Whether the body is one JSON value."""
        return self.body is not None and self.body.media == "application/json"


class AnswerCounts:
    """How many answers there were to requests of one route, by status."""

    def __init__(self) -> None:
        self._ok = self._created = self._no_content = 0  # the usual ones, which are cheaper to count so
        self._others: dict[int, int] = {}

    def add(self, status: int) -> None:
        """Count an answer."""
        if status == 201:
            self._created += 1
        elif status == 200:
            self._ok += 1
        elif status == 204:
            self._no_content += 1
        else:
            self._others[status] = self._others.get(status, 0) + 1

    def by_status(self) -> dict[int, int]:
        """The counts that are not 0."""
        usual = {200: self._ok, 201: self._created, 204: self._no_content}
        return {**{status: count for status, count in usual.items() if count}, **self._others}


class RouteEntry:
    """A row in the router of a listener, with what all requests for it share; also one for requests without a row."""

    def __init__(self, route: Route | None, place: int) -> None:
        self.route = route
        self.place = place  # in the table
        self.name = "other" if route is None else f"{route.method} {route.path}"  # in metrics
        self.defaults = {} if route is None else {parameter.name: parameter.default for parameter in route.query}
        self.counts: AnswerCounts | None = None  # see `HttpSetup.counts_of`
        self.pattern: TargetPattern | None = None  # of its targets, if one segment of its path varies


class TargetPattern:
    """The targets of a route whose path has one named segment, such as `/v1/jobs/{handle}/result`."""

    def __init__(self, route: Route, name: str, others: frozenset[bytes]) -> None:
        start, _, end = route.path.partition("{" + name + "}")
        self.name = name
        self.start = start.encode()
        self.end = end.encode()
        self.others = others  # what the segment must not be, because another route may be meant
        self.has_numbered_others = any(any(48 <= byte <= 57 for byte in other) for other in others)  # digits

    def value(self, target: bytes) -> bytes:
        """The value of the segment; empty if the target is not as simple as most, so that it has to be looked at."""
        start, end = len(self.start), len(target) - len(self.end)
        if end <= start or target[:start] != self.start or target[end:] != self.end:
            return b""
        value = target[start:end]
        # 0x2F, 0x3F and 0x25 are the slash, the question mark and the percent sign.
        if 0x2F in value or 0x3F in value or 0x25 in value or value in self.others:
            return b""
        return value


class RoutePlan:
    """What is known of a request by its head alone: its row and its parameters, or the problem with it."""

    def __init__(
        self,
        entry: RouteEntry,
        path: Mapping[str, bytes] | None,
        given: Mapping[str, Any],
        problem: HttpProblem | None = None,
    ) -> None:
        self.entry = entry
        self.route = entry.route
        self._path: Mapping[str, bytes] | None = path
        self.name = ""  # of the only named segment of a path, instead of `_path`
        self._value = b""
        # Where in the target this value is, if it has the last number of the target; otherwise 0.
        self.value_start = self.value_end = 0
        self.query = {**entry.defaults, **given} if given else entry.defaults  # all parameters
        self.given = given  # those of them that the request has
        self.problem = problem
        self.is_simple = False  # neither the query nor a header has an option of a job
        self.lease_us = -1  # of a request for a job, once that was looked at

    def has_value(self, name: str, value: bytes) -> None:
        """The path has one named segment, and this is its value."""
        self._path = None
        self.name = name
        self._value = value

    @property
    def path(self) -> Mapping[str, bytes]:
        """The values of the named segments of the path."""
        if self._path is None:
            self._path = {self.name: self._value}
        return self._path

    def value(self, name: str) -> bytes:
        """The value of a named segment of the path."""
        return self._value if name == self.name else self.path[name]


class RouteCall:
    """A request that is being answered."""

    def __init__(self, request: HttpRequest, plan: RoutePlan) -> None:
        self.request = request
        self.plan = plan

    @property
    def body(self) -> bytes:
        return self.request.body

    def argument(self, name: str) -> bytes:
        """The value of a named segment of the path."""
        return self.plan.value(name)

    def text(self, name: str) -> str:
        """The same as a text; raises HttpProblem."""
        try:
            return self.plan.value(name).decode()
        except UnicodeDecodeError:
            raise HttpProblem(404, "not_found", f"{name} is not UTF-8") from None

    def option(self, name: str) -> Any:
        """A parameter of the query, or its default."""
        return self.plan.query[name]


class PathNode:
    """What can follow the first segments of a path: more segments, which are fixed or have names, or its end."""

    def __init__(self) -> None:
        self.fixed: dict[bytes, PathNode] = {}
        self.named: dict[str, PathNode] = {}
        self.entries: dict[str, RouteEntry] = {}  # by method


class Router:
    """Finds the row for a request."""

    def __init__(self, routes: Sequence[Route], guard: BrowserGuard) -> None:
        self.guard = guard
        self._routes = routes
        self._root = PathNode()
        self._no_route = RouteEntry(None, len(routes))
        for place, route in enumerate(routes):
            node = self._root
            for segment in route.segments:
                if segment.startswith("{"):
                    node = node.named.setdefault(segment[1:-1], PathNode())
                else:
                    node = node.fixed.setdefault(segment.encode(), PathNode())
            node.entries.setdefault(route.method, RouteEntry(route, place))
        self._note_patterns()

    def _note_patterns(self) -> None:
        """Give patterns to the routes whose path has one named segment, if no other route has another name there."""
        for route in self._routes:
            names = [segment[1:-1] for segment in route.segments if segment.startswith("{")]
            if len(names) != 1:
                continue
            node = self._root
            others: frozenset[bytes] = frozenset()
            is_only_name = True
            for segment in route.segments:
                if segment.startswith("{"):
                    others = frozenset(node.fixed)
                    is_only_name = len(node.named) == 1
                    node = node.named[segment[1:-1]]
                else:
                    node = node.fixed[segment.encode()]
            entry = node.entries[route.method]
            if is_only_name and entry.route is route:
                entry.pattern = TargetPattern(route, names[0], others)

    def plan(self, head: RequestHead) -> RoutePlan:
        """The plan for a request, which is the same for each with this head."""
        plan: RoutePlan | None = head.plan
        if plan is None:
            plan = self._plan_by_pattern(head)
            if plan is not None:
                head.plan = plan
                return plan
            try:
                plan = self._made_plan(head)
            except HttpProblem as problem:
                plan = RoutePlan(self._no_route, {}, {}, problem.with_traceback(None))
            head.plan = plan
        return plan

    def _plan_by_pattern(self, head: RequestHead) -> RoutePlan | None:
        """The plan for a request that differs from an earlier one only in the named segment of its path, such as one
        report of a worker after the other; `None` if the target has to be looked at."""
        alike = head.alike
        if alike is None or not alike.is_admitted:
            return None
        numbered = head.numbered
        if numbered is not None:
            first: RoutePlan | None = numbered.plan
            if first is not None and first.value_end:  # only the number within the value is another one
                plan = RoutePlan(first.entry, None, NOTHING_GIVEN)
                plan.has_value(first.name, head.target[first.value_start : first.value_end])
                plan.is_simple = head.is_simple
                return plan
        entry: RouteEntry | None = alike.entry
        if entry is None or entry.pattern is None:
            return None
        pattern = entry.pattern
        value = pattern.value(head.target)
        if not value:
            return None
        plan = RoutePlan(entry, None, NOTHING_GIVEN)
        plan.has_value(pattern.name, value)
        plan.is_simple = head.is_simple
        value_start = len(pattern.start)
        value_end = value_start + len(value)
        if value_start <= head.number_start and 0 < head.number_end <= value_end and not pattern.has_numbered_others:
            plan.value_start = value_start
            plan.value_end = value_end
        return plan

    def _made_plan(self, head: RequestHead) -> RoutePlan:
        self._check_headers(head)
        target = head.target
        if target[0] != 0x2F and target.lower().startswith((b"http://", b"https://")):  # 0x2F is the slash
            target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
        path, query = target, b""
        if 0x3F in target:  # the question mark
            path, _, query = target.partition(b"?")
        if head.method == "OPTIONS" and target == b"*":
            headers = {"Allow": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}
            raise HttpProblem(204, "method_not_allowed", "these methods are used by some resources", headers=headers)
        entry, found = self._find(head.method, path)
        given = given_values(entry.route.query, query) if query and entry.route is not None else {}
        plan = RoutePlan(entry, found, given)
        plan.is_simple = not given and head.is_simple
        if head.alike is not None:
            head.alike.entry = entry
        return plan

    def _check_headers(self, head: RequestHead) -> None:
        """Raise HttpProblem if a browser makes the request on behalf of another's page, or if the body is compressed; a
        head that differs only in its target from one that was checked is not checked again."""
        alike = head.alike
        if alike is not None and alike.is_admitted:
            return
        problem = self.guard.problem(head) or coding_problem(head)
        if problem is not None:
            raise problem
        if alike is not None:
            alike.is_admitted = True

    def route_of(self, method: str, path: bytes) -> Route | None:
        """The row for a method and a path; `None` if there is none."""
        try:
            return self._find(method, path)[0].route
        except HttpProblem:
            return None

    def _find(self, method: str, path: bytes) -> tuple[RouteEntry, dict[str, bytes]]:
        if 0x25 in path and BAD_ESCAPE.search(path) is not None:  # 0x25 is the percent sign
            raise HttpProblem(400, "malformed_path", f"the path cannot be read: {BAD_ESCAPE_TEXT}")
        segments = path.split(b"/")
        nothing: dict[str, bytes] = {}
        ends = [] if segments[0] else path_ends(self._root, segments, 1, nothing)
        if len(ends) == 1:
            only, found = ends[0]
            entry = only.entries.get(method)
            if entry is not None:
                return entry, found
        fitting: dict[str, tuple[RouteEntry, dict[str, bytes]]] = {}
        for node, found in ends:
            for word, entry in node.entries.items():
                before = fitting.get(word)
                if before is None or entry.place < before[0].place:
                    fitting[word] = (entry, found)
        if not fitting:
            shown = path[:200].decode("ascii", "replace")
            hint = "GET /openapi.json lists what there is"
            if path.endswith(b"/") and any(
                node.entries for node, _ in path_ends(self._root, segments[:-1], 1, nothing)
            ):
                hint = "without the slash at its end, there is"
            raise HttpProblem(404, "not_found", f"there is nothing at {shown}; {hint}")
        chosen = fitting.get(method) or (fitting.get("GET") if method == "HEAD" else None)
        if chosen is None:
            allowed = ", ".join(sorted({*fitting, "OPTIONS", *(("HEAD",) if "GET" in fitting else ())}))
            status = 204 if method == "OPTIONS" else 405
            raise HttpProblem(status, "method_not_allowed", f"use one of {allowed}", headers={"Allow": allowed})
        return chosen


def coding_problem(head: RequestHead) -> HttpProblem | None:
    """Why a body cannot be read; `None` if it can.

    A compressed payload would otherwise reach a worker as it is, without the header that says so.
    """
    coding = head.headers.get(b"content-encoding")
    if coding is None or coding.lower() in (b"", b"identity"):
        return None
    word = coding[:60].decode("ascii", "replace")
    text = (
        f"the content coding {word} is not known here; for a payload that is to stay compressed, leave out the header"
    )
    return HttpProblem(415, "unknown_content_coding", text, headers={"Accept-Encoding": "identity"})


def path_ends(
    node: PathNode, segments: list[bytes], index: int, found: dict[str, bytes]
) -> list[tuple[PathNode, dict[str, bytes]]]:
    """Where a path ends that goes on from a node with the segment of this index: once for each way to understand it,
    with what is in the places of the names."""
    while index < len(segments):
        segment = segments[index]
        index += 1
        fixed = node.fixed.get(segment)
        if node.named:
            value = segment if 0x25 not in segment else unquote_to_bytes(segment)
            if value:
                ends = [] if fixed is None else path_ends(fixed, segments, index, dict(found))
                for name, child in node.named.items():
                    ends += path_ends(child, segments, index, {**found, name: value})
                return ends
        if fixed is None:
            return []
        node = fixed
    return [(node, found)]


def given_values(parameters: Sequence[QueryParameter], query: bytes) -> dict[str, Any]:
    """The parameters of a query, checked; raises HttpProblem."""
    values: dict[str, Any] = {}
    if not query:
        return values
    known = {parameter.name: parameter for parameter in parameters}
    if 0x25 in query and BAD_ESCAPE.search(query) is not None:
        raise HttpProblem(400, "malformed_query", f"the query cannot be read: {BAD_ESCAPE_TEXT}")
    try:
        text = query.decode("ascii")
        given = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise HttpProblem(400, "malformed_query", f"the query cannot be read: {error}") from None
    seen: dict[str, str] = {}
    for name, word in given:
        parameter = known.get(name)
        if parameter is None:
            there_are = ", ".join(known) or "none"
            raise field_problem("parameter", name, f"there is no such parameter here; there are: {there_are}")
        if name in seen:
            if not isinstance(parameter.kind, WordList | HandleList):
                raise field_problem("parameter", name, "it is given twice")
            word = f"{seen[name]},{word}"
        seen[name] = word
    for name, word in seen.items():
        kind = known[name].kind
        try:
            values[name] = kind.read(query_value(kind, word))
        except ValueError as error:
            raise field_problem("parameter", name, str(error)) from None
    return values


def query_value(kind: ArgumentKind, word: str) -> Any:
    """A word of a query as JSON would have it; what is of another kind stays a text, which the kind then refuses."""
    if isinstance(kind, Boolean):
        if word.lower() in TRUE_WORDS:
            return True
        return False if word.lower() in FALSE_WORDS else word
    if isinstance(kind, Whole):
        number = whole_number(word.encode())
        return word if number is None else number
    if isinstance(kind, Number):
        real = real_number(word.encode())
        return word if real is None else real
    if isinstance(kind, WordList | HandleList):
        return [each.strip() for each in word.split(",") if each.strip()]
    return word


def replace_cursor(given: dict[str, Any]) -> None:
    """Replace the parameter `cursor`, which is the `next` of another page, with the argument `before_id`."""
    cursor = given.pop("cursor", None)
    if cursor is not None:
        before_id = whole_number(cursor.encode())
        if not before_id:
            raise field_problem("parameter", "cursor", "it is the `next` of another page")
        given["before_id"] = before_id
