"""Rewrites answers that are held until a commit: to refusals, or to the id of the job that a submission has joined."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import Refused
from switchgear.protocols.http.codec import answer_head, chunk
from switchgear.protocols.http.messages import PROBLEM
from switchgear.protocols.http.problems import header_lines, problem_body, refusal_problem, refused_line

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["answer_with_id", "refusal_answer", "refusal_instead_of"]

CLOSE_LINE: Final = b"\r\nConnection: close\r\n"
# How the answer to a line of a batch begins, in a chunk or without.
LINE_OF_BATCH: Final = re.compile(rb'\{"line":([0-9]+)')
LONGEST_LINE_START: Final = 40


def refusal_answer(session: HttpSession, refused: Refused) -> bytes:
    """A whole answer that tells of a refusal."""
    problem = refusal_problem(refused, refused.told(session.handle_text))
    body = problem_body(problem, "")
    date = session.setup.date(session.engine.now_us)
    return answer_head(problem.status, PROBLEM, len(body), header_lines(problem), date, keeps_alive=True) + body


def refusal_instead_of(session: HttpSession, answer: Any, refused: Refused) -> Any:
    """The refusal that is sent in place of an answer, or of the answer to a line of a batch."""
    line = LINE_OF_BATCH.search(answer, 0, LONGEST_LINE_START)
    if line is not None and not answer.startswith(b"HTTP/"):
        problem = refusal_problem(refused, refused.told(session.handle_text))
        text = refused_line(int(line[1]), problem) + b"\n"
        return chunk(text) if line.start() else text
    refusal = refusal_answer(session, refused)
    if CLOSE_LINE in answer[: answer.find(b"\r\n\r\n") + 4]:
        refusal = refusal.replace(b"\r\n\r\n", CLOSE_LINE + b"\r\n", 1)
    return refusal


def answer_with_id(session: HttpSession, answer: Any, job_id: int) -> Any:
    """The answer that a job was created, changed to one that this other job was joined."""
    setup = session.setup
    created = setup.created_json(str(job_id).encode(), is_joined=True)
    line = LINE_OF_BATCH.search(answer, 0, LONGEST_LINE_START)
    if line is not None and not answer.startswith(b"HTTP/"):
        text = b"%b,%b\n" % (line[0], created[1:])
        return chunk(text) if line.start() else text
    head, _, body = answer.partition(b"\r\n\r\n")
    if not body.startswith(setup.created_body[4:]):
        return answer
    lines = head.split(b"\r\n")
    lines[0] = lines[0].replace(b" 201 Created", b" 200 OK")
    for place, each in enumerate(lines):
        if each.startswith(b"Location: "):
            lines[place] = session.location(job_id)[:-2]
        elif each.startswith(b"Content-Length: "):
            lines[place] = b"Content-Length: %d" % len(created)
    return b"\r\n".join(lines) + b"\r\n\r\n" + created
