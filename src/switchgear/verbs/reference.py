"""`reference_page`: the table of verbs as the page docs/verbs.md."""

from __future__ import annotations

from textwrap import wrap
from typing import Any, Final, get_args, get_type_hints

from switchgear.verbs.access import Role
from switchgear.verbs.operator_verb import Argument, Keeps, OperatorVerb
from switchgear.verbs.table import VERBS

__all__ = ["reference_page"]

_COLUMNS: Final = 120

_HEAD: Final = """\
# Verbs of operators

A verb is a request of operators to a server. All interfaces use the same table: CONTROL packets of the
[Gearman port](protocols/gearman.md#for-operators), the command line, `App.control` and the methods of the Python
library. This page is written from that table (`src/switchgear/verbs/table.py`) by `make verbs`.
[How to add a verb](howto/add-a-verb.md).

Arguments are a JSON object. Bytes are text if they are UTF-8, and otherwise `{"base64": …}`. Times are seconds since
the epoch. A verb with a wrong argument changes nothing, and the error names the verb and the argument:
`jobs: limit: expected a whole number from 1 to 1000, got 'x'`.

Each verb needs a role. Without an [access file](howto/tls-and-access.md), every peer that can connect has all roles;
only `shutdown` has [a setting of its own](howto/configure.md). A verb that changes something is answered when the
change is in the store.

If [several servers own functions](howto/cluster-owners.md#operators-see-one-system), any of them can be asked: it
passes a verb on to the nodes that have what it concerns, and merges their answers.
"""

_ROLES: Final = {
    Role.READ: "look at jobs, functions, workers, schedules and the server",
    Role.SUBMIT: "submit jobs, and follow single jobs by their handles",
    Role.WORK: "run jobs, and declare the limits and schedules of a program",
    Role.OPERATE: "cancel, retry, pause, limit, schedule",
    Role.ADMIN: "stop the server, and look into the connections of others",
}

_KEPT: Final = {
    Keeps.CHANGE: "It is answered when the change is stored.",
    Keeps.EARLIER: "It is answered when everything in the answer is stored.",
    Keeps.NEW_JOB: "It is answered when the new job is in the store, or refused if it cannot be stored.",
}


def reference_page() -> str:
    """The page docs/verbs.md."""
    verbs = list(VERBS.values())
    lines = [_HEAD, "| verb | what it does | role |", "|---|---|---|"]
    lines += [f"| [`{verb.name}`](#{verb.name}) | {verb.help} | {_roles(verb)} |" for verb in verbs]
    lines += ["", "| role | allows to |", "|---|---|"]
    lines += [f"| {role.value} | {text} |" for role, text in _ROLES.items()]
    for verb in verbs:
        lines += ["", *_section(verb)]
    return "\n".join(lines) + "\n"


def _section(verb: OperatorVerb) -> list[str]:
    text = f"{verb.help} {_KEPT.get(verb.keeps, '')}".strip()
    if verb.is_long:
        text += " Long work is done in steps, between which the server does other work."
    lines = [f"## {verb.name}", "", *_wrapped(text)]
    lines += ["", f"- Role: {_roles(verb)}", f"- Command: {_face(verb.command, 'switchgear ')}"]
    lines.append(f"- Python: {_face(verb.library, '')}")
    lines.append(f"- In a cluster of owners: {verb.reach.value}")
    if verb.text_commands:
        lines.append("- Text commands: " + ", ".join(f"`{command}`" for command in verb.text_commands))
    if verb.arguments:
        lines += ["", "| argument | value | default | meaning |", "|---|---|---|---|"]
        lines += [_argument(argument) for argument in verb.arguments]
    if not verb.is_text_only:
        lines += ["", *_answer(verb.answer)]
    return lines


def _roles(verb: OperatorVerb) -> str:
    return " or ".join(role.value for role in Role if role in verb.roles)


def _face(text: str, prefix: str) -> str:
    if text.startswith("("):
        return f"none {text}"
    return ", ".join(f"`{prefix}{name}`" for name in text.split(", "))


def _argument(argument: Argument) -> str:
    default = "required" if argument.required else _default(argument.default)
    unit = f" ({argument.unit})" if argument.unit and argument.unit not in argument.kind.expected else ""
    return f"| `{argument.name}` | {argument.kind.expected}{unit} | {default} | {argument.help} |"


def _default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ("", b"") else "empty"


def _answer(answer: Any) -> list[str]:
    """The fields of an answer, and those of the types in it that are this answer's own."""
    items = get_args(answer)
    kind = items[0] if items else answer
    text = " ".join((kind.__doc__ or "").split())
    fields = ", ".join(f"`{name}`" for name in get_type_hints(kind))
    start = "Answer, a list of such objects" if items else "Answer"
    return [*_wrapped(f"{start}: {text}"), "", *_wrapped(f"Fields: {fields}.")]


def _wrapped(text: str) -> list[str]:
    return wrap(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)
