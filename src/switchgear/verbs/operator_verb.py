"""`OperatorVerb` and `Argument`: what the rows of the table of verbs consist of, and checking arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from switchgear.verbs.access import Role
from switchgear.verbs.kinds import ArgumentKind

__all__ = ["Argument", "Keeps", "OperatorVerb", "Reach", "checked"]


class Keeps(Enum):
    """What must be in the store before a verb is answered."""

    NOTHING = "nothing"
    CHANGE = "change"  # what the verb has changed
    EARLIER = "earlier changes"  # what the answer says that others have changed
    NEW_JOB = "new job"  # the job that the answer names; if it cannot be stored, the answer is a refusal


class Reach(Enum):
    """Which servers carry out a verb, if several own functions (`cluster.mode = "owners"`)."""

    HERE = "the node that is asked"
    FUNCTION = "the owner of the function"
    SCHEDULE = "the owner of the function of the schedule"
    JOB = "the owner of the job"
    JOBS = "the owner of the job or function that is named, and otherwise all nodes"
    ALL = "all nodes"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb.  An argument whose default is None may also be given as null."""

    name: str
    kind: ArgumentKind
    help: str  # a sentence, which the command line shows too
    unit: str = ""
    default: Any = None
    required: bool = False
    option: str = ""  # its name on the command line, if that differs
    metavar: str = ""

    @property
    def flag(self) -> str:
        """The option of the command line, such as `--key-rate`, or several with spaces between them."""
        return self.option or "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class OperatorVerb:
    """One verb.  `command` and `library` say how the command line and the Python library reach it.

    Where one of them does not, the text is in parentheses and says why.
    """

    name: str
    help: str  # one sentence
    role: Role
    answer: Any  # the type of the answer, of `verbs.answers`; None if only text commands have the verb
    arguments: tuple[Argument, ...] = ()
    keeps: Keeps = Keeps.NOTHING
    is_long: bool = False  # runs in steps, between which the server does other work
    also: frozenset[Role] = frozenset()  # other roles that may use it
    reach: Reach = field(kw_only=True)  # no default: whoever adds a verb decides
    command: str = ""
    library: str = ""
    text_commands: tuple[str, ...] = ()  # commands of the text protocol that do the same, as gearmand formats it

    @property
    def changes(self) -> bool:
        """Whether the verb changes something that must be stored before the answer."""
        return self.keeps in (Keeps.CHANGE, Keeps.NEW_JOB)

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that may use the verb: any of them is enough."""
        return self.also | {self.role}

    @property
    def is_text_only(self) -> bool:
        """Whether only commands of the text protocol have the verb."""
        return self.answer is None

    def argument(self, name: str) -> Argument:
        """An argument by its name; raises KeyError."""
        found = next((argument for argument in self.arguments if argument.name == name), None)
        if found is None:
            raise KeyError(f"{self.name} has no argument {name}")
        return found


def checked(verb: OperatorVerb, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a verb: those given, checked, and the defaults of the others.

    Raises ValueError, which names the verb and the argument.
    """
    values: dict[str, Any] = {}
    for argument in verb.arguments:
        value = given.get(argument.name, argument.default)
        if value is None and argument.required:
            raise ValueError(f"{verb.name}: {argument.name} is missing: expected {argument.kind.expected}")
        if argument.name in given and not (value is None and argument.default is None):
            try:
                value = argument.kind.read(value)
            except ValueError as error:
                raise ValueError(f"{verb.name}: {argument.name}: {error}") from None
        values[argument.name] = value
    unknown = [name for name in given if name not in values]
    if unknown:
        known = ", ".join(values) or "none"
        raise ValueError(f"{verb.name}: there is no argument {unknown[0][:100]!r}; there are: {known}")
    return values
