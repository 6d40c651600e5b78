"""The glossary defines each word once, has only words that are in use, and explains the words of public names."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import switchgear
import switchgear.client
import switchgear.testing
from switchgear.cli.main import COMMANDS
from switchgear.job_options import JOB_OPTIONS
from switchgear.states import Cause, JobState
from switchgear.verbs.access import Role
from switchgear.verbs.table import VERBS
from tests.docs.pages import DOCS

SOURCES = Path(switchgear.__file__).parent

# Words of public names that a reader who knows other job servers, Python and asyncio knows.
FIELD_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        abort address after already argument async backoff badly bench broken broker cancel cancelled change check
        client clock command config connection connections create current curve dashboard default directory done drop
        early ended error errors expired explain export extension failed fake for forever found handler import in
        invariant keys kind later lost manager new not observer on open out overview pause postgres progress
        ready reconnect recording refused register released replaced replay required requires rescheduled resume
        retried running s3 serve shared shell shutdown slow status storage submission submitted succeeded
        switchgear taken timed times top trace type unknown unreachable unschedule update version wait waiting
        watch would
        """,
    )
)
# Names of protocols and programs, which have pages of their own.
PROTOCOL_WORDS = frozenset({"dwork", "gear", "gearman", "gearmand", "monkey", "ping", "pong", "wmp"})


def rows() -> list[tuple[str, str]]:
    """The words of each row of the glossary, and their meaning."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+) \| (.+) \|$", text, re.MULTILINE)
    return [(words, meaning) for words, meaning in found if words != "word"]


def entries() -> list[str]:
    return [word.strip() for words, _ in rows() for word in words.split(",")]


def explained() -> list[str]:
    """All words that the glossary explains: its entries, and the bold words in their meanings."""
    return entries() + [word for _, meaning in rows() for word in re.findall(r"\*\*([^*]+)\*\*", meaning)]


def glossary_words() -> set[str]:
    return {part for word in explained() for part in re.findall(r"[a-z]+", word.lower())}


def words_of(name: str) -> list[str]:
    """The words that a name in code consists of.

    >>> words_of("AsyncWmpWorker")
    ['async', 'wmp', 'worker']
    """
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+\d*", name)
    return [part.lower() for part in parts]


@cache
def source_text() -> str:
    """All sources as lower-case words, with the words of names apart."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py"))]
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_-]", " ", "\n".join(texts))
    return re.sub(r"\s+", " ", apart).lower()


def public_names() -> list[str]:
    names = {*switchgear.__all__, *switchgear.testing.__all__, *switchgear.client.__all__}
    names |= {option.name for option in JOB_OPTIONS} | set(VERBS) | set(COMMANDS)
    names |= {role.value for role in Role} | {state.name for state in JobState} | {cause.name for cause in Cause}
    return sorted(names)


def test_a_word_has_one_entry() -> None:
    assert [word for word, count in Counter(entries()).items() if count > 1] == []


@pytest.mark.parametrize("word", explained())
def test_a_word_of_the_glossary_is_in_use(word: str) -> None:
    assert re.search(rf"\b{re.escape(word.lower().replace('-', ' '))}", source_text())


def test_the_words_of_public_names_are_explained() -> None:
    known = glossary_words() | FIELD_WORDS | PROTOCOL_WORDS
    strange = {
        f"{word} ({name})"
        for name in public_names()
        for word in words_of(name)
        if not {word, word.removesuffix("s"), word.removesuffix("d"), word.removesuffix("ed")} & known
    }
    assert sorted(strange) == []


def test_a_common_word_is_part_of_a_public_name_and_not_explained() -> None:
    used = {word for name in public_names() for word in words_of(name)}
    assert sorted((FIELD_WORDS | PROTOCOL_WORDS) - used) == []
    assert sorted(FIELD_WORDS & glossary_words()) == []
