"""Uses operator verbs for requests, and answers with what they answer, redacted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from switchgear.json_bytes import encoded_around, pieces_of
from switchgear.protocols.http.long_answers import respond_json_in_steps
from switchgear.protocols.http.problems import HttpProblem
from switchgear.protocols.http.request_problems import incomplete_lines, refuse_search, verb_problem
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step
from switchgear.verbs.operator_verb import Keeps
from switchgear.verbs.table import VERBS

__all__ = ["use_verb", "verb_answer"]


def use_verb(session: HttpSession, verb: str, arguments: dict[str, Any]) -> Iterator[Step]:
    """Use an operator verb in steps, and answer with what it answers."""
    answer = yield from verb_answer(session, verb, arguments)
    if not session.incomplete_lines:
        yield from respond_json_in_steps(session, 200, answer)
        return
    parts, values = encoded_around(answer)
    pieces = [parts[0]]
    for part, value in zip(parts[1:], values, strict=True):
        for piece in pieces_of(value.data):
            yield False
            pieces.append(piece)
        pieces.append(part)
    session.respond(200, b"".join(pieces), headers=session.incomplete_lines)


def verb_answer(session: HttpSession, verb: str, arguments: dict[str, Any], *, keeps_result: bool = False) -> Any:
    """The answer of an operator verb, in steps, redacted; raises HttpProblem or Refused.

    With `keeps_result`, whoever asks is to get the result of the job as it is.
    """
    answers: list[Any] = []
    redaction = session.redaction()
    if redaction is not None and arguments.get("contains"):
        refuse_search(redaction, arguments)
    try:
        yield from session.context.operate_in_steps(verb, arguments, answers)
    except LookupError as error:
        raise HttpProblem(404, "not_found", str(error.args[0])) from None
    except (TypeError, ValueError) as error:
        plan = session.call.plan if session.call is not None else None
        raise verb_problem(plan, arguments, str(error).removeprefix(f"{verb}: ")) from None
    if len(answers) > 1:
        session.note_incomplete(incomplete_lines(answers[1]))
    if VERBS[verb].keeps is Keeps.EARLIER:
        session.await_commit()
    if redaction is not None:
        return (yield from redaction.shown_answer(answers[0], keeps_result=keeps_result))
    return answers[0]
