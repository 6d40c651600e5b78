"""`HttpProblem`: an error that is answered with a problem document (RFC 9457), and how such documents are written.

A module of its own, which is not compiled: a compiled class cannot extend an exception of ours, which is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from switchgear.errors import OptionError, PeerError, Refused
from switchgear.refusals import REFUSALS
from switchgear.text import harmless

__all__ = [
    "AUTHENTICATE",
    "PROBLEM_TYPE",
    "FieldError",
    "HttpProblem",
    "field_problem",
    "header_lines",
    "option_problem",
    "problem_body",
    "refusal_problem",
    "refused_line",
    "validation_problem",
]

PROBLEM_TYPE: Final = "urn:switchgear:problem:"
AUTHENTICATE: Final = 'Bearer realm="switchgear"'  # how to identify oneself
RETRY_AFTER_SECONDS: Final = 1  # for what may work again soon: room in a queue, another server, a store

FieldError = tuple[str, str, str]
"""Where: `pointer` (a JSON pointer into the body, RFC 6901), `parameter` (of the query) or `header`; which; and what is
wrong with it."""


WHERE: Final = {"pointer": "field", "parameter": "parameter", "header": "header"}


class HttpProblem(PeerError):
    """Something that a request cannot have, with the status of the answer and a word for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        framing_lost: bool = False,
        is_bad_input: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail, code=code, framing_lost=framing_lost)
        self.status = status
        self.errors = errors
        self.headers = dict(headers or {})
        self.more = more or {}  # further members of the document
        self.is_bad_input = is_bad_input  # counted and logged as what no well-behaved client sends


def field_problem(where: str, name: str, detail: str, *, status: int = 422) -> HttpProblem:
    """A field of the body, a parameter of the query or a header has a wrong value; see `FieldError`."""
    shown = name.removeprefix("/")
    return HttpProblem(
        status, f"invalid_{WHERE[where]}", f"{shown}: {detail}" if shown else detail, errors=[(where, name, detail)]
    )


def option_problem(error: OptionError, where: str) -> HttpProblem:
    """A job option has a value that it cannot have."""
    text = str(error).removeprefix(error.name).strip()
    return field_problem(where, f"/{error.name}" if where == "pointer" else error.name, text)


def refusal_problem(refused: Refused, text: str) -> HttpProblem:
    """The engine does not take a command; the table of refusals has the status."""
    status = REFUSALS[refused.reason].http
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = AUTHENTICATE
    return HttpProblem(status, refused.reason, text, headers=headers)


TRUNCATED: Final = "Input data was truncated"  # what msgspec says


def validation_problem(error: Exception, where: str = "") -> HttpProblem:
    """A JSON text that cannot be read, or is not what the request takes; `where` is the pointer to it."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        if text == TRUNCATED:
            text = "it is empty, or its end is missing"
        return HttpProblem(400, "invalid_json", f"the body is not JSON: {text}", errors=[("pointer", where, text)])
    detail, _, path = text.partition(" - at `$")
    # A value of an object with any keys is "[...]" there: the pointer is to the object.
    steps = path.rstrip("`").replace("[...]", "").replace("]", "").replace("[", ".").split(".")[1:]
    pointer = where + "".join(f"/{step}" for step in steps)
    if detail.startswith(("Object contains unknown field `", "Object missing required field `")):
        pointer += "/" + detail.split("`")[1].replace("~", "~0").replace("/", "~1")
    return HttpProblem(
        422, "invalid_field", f"{pointer or 'the body'}: {detail}", errors=[("pointer", pointer, detail)]
    )


def header_lines(problem: HttpProblem) -> bytes:
    """The headers of an answer with this problem, as lines."""
    return b"".join([b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in problem.headers.items()])


def problem_body(problem: HttpProblem, instance: str) -> bytes:
    """The problem document."""
    document: dict[str, Any] = {
        "type": PROBLEM_TYPE + problem.code,
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": harmless(str(problem)),
        "code": problem.code,
    }
    if instance:
        document["instance"] = instance
    document.update(problem.more)
    if problem.errors:
        document["errors"] = [
            {where: harmless(name), "detail": harmless(detail)} for where, name, detail in problem.errors
        ]
    return msgspec.json.encode(document)


def refused_line(number: int, problem: HttpProblem) -> bytes:
    """The answer to a line of a batch that was not submitted."""
    return msgspec.json.encode({"line": number, "problem": msgspec.Raw(problem_body(problem, ""))})
