"""Words of strangers, made fit to be repeated, and secrets that are not repeated."""

from __future__ import annotations

import pytest

from switchgear.text import escaped_name, harmless, in_one_line, printable, without_secrets

NASTY = ["a\nb", "a\tb", "\x1b[2J", "a\0b", "a\rb", "\x9b2J", "\u202egnp.exe", "a\u2028b", "\udc80", "\x07", "\x7f"]


@pytest.mark.parametrize("text", NASTY)
def test_a_terminal_obeys_nothing_of_it(text: str) -> None:
    assert printable(text).isprintable()
    assert harmless(text).isprintable()
    printable(text).encode()


def test_what_is_printable_stays() -> None:
    text = "größe ✓ \\x1b 'quoted'"
    assert printable(text) == harmless(text) == text


def test_a_long_text_is_cut() -> None:
    assert len(harmless("x" * 512)) < 512


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"mail", b"mail"),
        (b"a\nb", b"a\\x0ab"),
        (b"a\r\0b", b"a\\x0d\\x00b"),
        (b"space\tname", b"space\tname"),
        (b"\x1b[2J", b"\\x1b[2J"),
        ("größe".encode(), "größe".encode()),
        (b"gr\xf6\xdfe", b"gr\xf6\xdfe"),
        (b"\x9b2J", b"\\x9b2J"),
        ("\x9b".encode(), b"\\xc2\\x9b"),
        ("\u202e".encode(), b"\\xe2\\x80\\xae"),
        (b"n\n" * 256, b"n\\x0a" * 256),
        (b"", b""),
    ],
)
def test_a_name_in_a_line_of_the_text_protocol(name: bytes, shown: bytes) -> None:
    assert escaped_name(name) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://jobs:hunter2@db/jobs", "postgresql://jobs:***@db/jobs"),
        ("postgresql://jobs:hunter2/@2@db/jobs", "postgresql://jobs:***@db/jobs"),
        ("redis://:hunter2@db:6379", "redis://:***@db:6379"),
        ("postgresql://jobs@db:5432/jobs", "postgresql://jobs@db:5432/jobs"),
        ("postgresql://db:5432/jobs?a=b@c", "postgresql://db:5432/jobs?a=b@c"),
        ("postgresql:///jobs?password=hunter2&host=/run", "postgresql:///jobs?password=***&host=/run"),
        ("postgresql:///jobs?sslpassword=hunter2", "postgresql:///jobs?sslpassword=***"),
        ("redis://h?PASSWORD=hunter2", "redis://h?PASSWORD=***"),
        ("redis://h?password_file=/run/secret", "redis://h?password_file=/run/secret"),
        ("host=db password=hunter2 user=jobs", "host=db password=*** user=jobs"),
        ("host=db password='hunter2 x' user=jobs", "host=db password=*** user=jobs"),
        ('"redis://u:hunter2@h" and "redis://v:hunter2@h"', '"redis://u:***@h" and "redis://v:***@h"'),
        ("sqlite:/var/lib/jobs.db", "sqlite:/var/lib/jobs.db"),
        ("gearman://127.0.0.1:4730", "gearman://127.0.0.1:4730"),
        ("", ""),
    ],
)
def test_passwords_in_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_password_that_is_quoted_alone() -> None:
    url = "postgresql://jobs:hunter%202@db/jobs"
    assert without_secrets('bad token "hunter%202", or "hunter 2"', url) == 'bad token "***", or "***"'


def test_tokens_are_hidden_wherever_they_are() -> None:
    from switchgear.access.tokens import new_token

    token = new_token()
    assert without_secrets(f"unknown command 'ATUH', with args beginning with: '{token}'").endswith("'swg_***'")
    assert without_secrets("swg_ is a prefix") == "swg_ is a prefix"


def test_messages_of_other_programs_become_one_line() -> None:
    assert in_one_line("server closed it\n\tThis probably means\n") == "server closed it This probably means"
