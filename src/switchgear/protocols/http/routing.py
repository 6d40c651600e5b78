"""The route table's rows, and how a request finds its row.

`routes.ROUTES` has the rows.  Dispatch, roles and the OpenAPI document are made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from switchgear.numbers import real_number, whole_number
from switchgear.protocols.http.guard import BrowserGuard
from switchgear.protocols.http.messages import HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem, field_problem
from switchgear.verbs.access import Role
from switchgear.verbs.kinds import ArgumentKind, Boolean, HandleList, Number, Whole, WordList

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["BodyKind", "QueryParameter", "Route", "RouteAnswer", "RouteCall", "RoutePlan", "Router"]

MOST_PARAMETERS: Final = 50
TRUE_WORDS: Final = ("1", "true", "yes", "")
FALSE_WORDS: Final = ("0", "false", "no")


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


class RoutePlan:
    """What is known of a request by its head alone: its row and its parameters, or the problem with it."""

    def __init__(
        self,
        route: Route | None,
        path: Mapping[str, bytes],
        query: Mapping[str, Any],
        given: Mapping[str, Any],
        problem: HttpProblem | None = None,
    ) -> None:
        self.route = route
        self.name = "other" if route is None else f"{route.method} {route.path}"  # in metrics
        self.path = path
        self.query = query  # all parameters
        self.given = given  # those of them that the request has
        self.problem = problem


class RouteCall:
    """A request that is being answered."""

    def __init__(self, request: HttpRequest, plan: RoutePlan) -> None:
        self.request = request
        self.plan = plan

    @property
    def body(self) -> bytes:
        return self.request.body

    def argument(self, name: str) -> bytes:
        """What the path has in the place of a name."""
        return self.plan.path[name]

    def text(self, name: str) -> str:
        """The same as a text; raises HttpProblem."""
        try:
            return self.plan.path[name].decode()
        except UnicodeDecodeError:
            raise HttpProblem(404, "not_found", f"{name} is not UTF-8") from None

    def option(self, name: str) -> Any:
        """A parameter of the query, or its default."""
        return self.plan.query[name]


class Router:
    """Finds the row for a request."""

    def __init__(self, routes: Sequence[Route], guard: BrowserGuard) -> None:
        self.guard = guard
        self._by_length: dict[int, list[Route]] = {}
        for route in routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    def plan(self, head: RequestHead) -> RoutePlan:
        """The plan for a request, which is the same for each with this head."""
        plan: RoutePlan | None = head.plan
        if plan is None:
            try:
                plan = self._made_plan(head)
            except HttpProblem as problem:
                plan = RoutePlan(None, {}, {}, {}, problem.with_traceback(None))
            head.plan = plan
        return plan

    def _made_plan(self, head: RequestHead) -> RoutePlan:
        problem = self.guard.problem(head)
        if problem is not None:
            raise problem
        target = head.target
        if target.lower().startswith((b"http://", b"https://")):
            target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
        path, _, query = target.partition(b"?")
        if head.method == "OPTIONS" and target == b"*":
            raise HttpProblem(404, "not_found", "there is nothing to be said about all resources")
        route, found = self._find(head.method, path)
        given = given_values(route.query, query)
        values = {parameter.name: parameter.default for parameter in route.query}
        return RoutePlan(route, found, {**values, **given}, given)

    def _find(self, method: str, path: bytes) -> tuple[Route, dict[str, bytes]]:
        segments = path.split(b"/")[1:] if path.startswith(b"/") else []
        fitting: dict[str, tuple[Route, dict[str, bytes]]] = {}
        for route in self._by_length.get(len(segments), ()):
            found = matched(route, segments)
            if found is not None:
                fitting.setdefault(route.method, (route, found))
        if not fitting:
            shown = path[:200].decode("ascii", "replace")
            raise HttpProblem(404, "not_found", f"there is nothing at {shown}; GET /openapi.json lists what there is")
        chosen = fitting.get(method) or (fitting.get("GET") if method == "HEAD" else None)
        if chosen is None:
            allowed = ", ".join(sorted({*fitting, "OPTIONS", *(("HEAD",) if "GET" in fitting else ())}))
            status = 204 if method == "OPTIONS" else 405
            raise HttpProblem(status, "method_not_allowed", f"use one of {allowed}", headers={"Allow": allowed})
        return chosen


def matched(route: Route, segments: list[bytes]) -> dict[str, bytes] | None:
    """What the path has in the places of the names; None if it is another path."""
    found: dict[str, bytes] = {}
    for wanted, given in zip(route.segments, segments, strict=True):
        if wanted.startswith("{"):
            value = unquote_to_bytes(given)
            if not value:
                return None
            found[wanted[1:-1]] = value
        elif wanted.encode() != given:
            return None
    return found


def given_values(parameters: Sequence[QueryParameter], query: bytes) -> dict[str, Any]:
    """The parameters of a query, checked; raises HttpProblem."""
    values: dict[str, Any] = {}
    if not query:
        return values
    known = {parameter.name: parameter for parameter in parameters}
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
