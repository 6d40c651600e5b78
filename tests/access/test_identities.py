"""Who is who: by token, certificate and key; what changes when the file is read again."""

from __future__ import annotations

import pytest

from switchgear.access.access_file import AccessEntry, AccessList
from switchgear.access.browser_sessions import LIFETIME_SECONDS, MOST_SESSIONS, BrowserSessions
from switchgear.access.identities import OPEN_ACCESS, Identities, ListenerAccess, PeerCertificate
from switchgear.access.permissions import MOST_REMEMBERED, Permissions
from switchgear.access.tokens import digest_of, new_token
from switchgear.access.z85 import z85_decoded
from switchgear.verbs.access import ALL_ROLES, Role

TOKEN = "swg_0123456789abcdef0123456789abcdef"
KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
READ = frozenset({Role.READ})


def hashed(token: str) -> str:
    return f"sha256:{digest_of(token.encode()).hex()}"


def listed(*entries: AccessEntry, anonymous: frozenset[Role] = frozenset()) -> AccessList:
    return AccessList(AccessEntry("anonymous", anonymous), {entry.name: entry for entry in entries})


ALICE = AccessEntry("alice", READ, ("mail.*",), (hashed(TOKEN),), ("CN=alice", "sha256:" + "ab" * 32), (KEY,))


def test_credentials_name_their_owner() -> None:
    known = Identities(access=listed(ALICE))
    alice = known.named("alice")
    assert alice is not None
    assert known.by_token(TOKEN.encode()) is alice
    assert known.by_certificate(PeerCertificate("alice", b"")) is alice
    assert known.by_certificate(PeerCertificate("bob", b"\xab" * 32)) is alice
    assert known.by_curve_key(z85_decoded(KEY)) is alice
    for wrong in ("", TOKEN[:-1], TOKEN + "x", hashed(TOKEN), "x" * 10_000):
        assert known.by_token(wrong.encode()) is None
    assert known.by_certificate(PeerCertificate("", b"")) is None
    assert known.by_curve_key(b"") is None


def test_a_listener_accepts_the_kinds_that_it_names() -> None:
    known = Identities(access=listed(ALICE, anonymous=READ))
    certificate = PeerCertificate("alice", b"")
    for kinds in ({"token"}, {"certificate"}, {"curve"}, {"anonymous"}, {"token", "curve"}):
        access = ListenerAccess(known, kinds)
        assert not access.is_open
        assert (access.by_token(TOKEN.encode()) is not None) == ("token" in kinds)
        assert (access.by_certificate(certificate) is not None) == ("certificate" in kinds)
        assert (access.by_curve_key(z85_decoded(KEY)) is not None) == ("curve" in kinds)
        assert bool(access.anonymous().roles) == ("anonymous" in kinds)
    for access in (ListenerAccess(known, {"open"}), OPEN_ACCESS):
        assert access.is_open
        assert access.anonymous().is_full
        assert access.by_token(TOKEN.encode()) is None


@pytest.mark.parametrize(
    ("new", "is_reduced"),
    [
        (ALICE, False),
        (
            AccessEntry(
                "alice",
                READ | {Role.WORK},
                ("mail.*",),
                *[getattr(ALICE, x) for x in ("tokens", "certificates", "curve_keys")],
            ),
            False,
        ),
        (
            AccessEntry(
                "alice", READ, ("mail.*", "x"), *[getattr(ALICE, x) for x in ("tokens", "certificates", "curve_keys")]
            ),
            False,
        ),
        (AccessEntry("alice", READ, (), *[getattr(ALICE, x) for x in ("tokens", "certificates", "curve_keys")]), False),
        (AccessEntry("alice", frozenset(), ("mail.*",), (hashed(TOKEN),)), True),
        (
            AccessEntry("alice", READ, ("x",), *[getattr(ALICE, x) for x in ("tokens", "certificates", "curve_keys")]),
            True,
        ),
        (AccessEntry("alice", READ, ("mail.*",), (hashed("other"),)), True),
    ],
)
def test_who_may_do_less_after_a_reload(new: AccessEntry, is_reduced: bool) -> None:
    known = Identities(access=listed(ALICE))
    alice = known.named("alice")
    reduced = known.use(listed(new))
    assert (alice in reduced) == is_reduced
    assert known.named("alice") is alice


def test_a_removed_identity_may_do_nothing() -> None:
    known = Identities(access=listed(ALICE))
    alice = known.named("alice")
    assert alice is not None
    assert known.use(listed()) == [alice]
    assert not alice.roles
    assert known.by_token(TOKEN.encode()) is None
    assert known.use(listed(ALICE, anonymous=READ)) is not None
    assert known.anonymous.roles == READ


def test_permissions() -> None:
    assert Permissions("a", {Role.OPERATE}).roles == {Role.OPERATE, Role.READ}
    admin = Permissions("a", {Role.ADMIN})
    assert admin.roles == ALL_ROLES
    assert admin.is_full
    limited = Permissions("a", {Role.ADMIN}, ["mail.*", "é?"])
    assert not limited.is_full
    covered = {
        name: limited.covers(name) for name in (b"mail.x", b"mail.", b"mail", b"xmail.x", "éa".encode(), b"\xff")
    }
    assert covered == {
        b"mail.x": True,
        b"mail.": True,
        b"mail": False,
        b"xmail.x": False,
        "éa".encode(): True,
        b"\xff": False,
    }
    assert limited.refusal("x", READ, b"mail\n") == "x: a may not use the function mail?"
    for number in range(3 * MOST_REMEMBERED):
        limited.covers(b"%d" % number)
    assert limited.covers(b"mail.x")
    everywhere = Permissions("a", {Role.WORK}, ["*"])
    assert everywhere.covers(b"\xff\n")


def test_new_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 40 and token.startswith("swg_") and token.isascii() for token in tokens)


def test_browser_sessions_end() -> None:
    sessions = BrowserSessions()
    alice = Permissions("alice", READ)
    cookie = sessions.begin(alice, 0).encode()
    assert sessions.find(cookie, 5) is alice
    assert sessions.find(cookie + b"x", 5) is None
    assert sessions.find(b"x" * 1000, 5) is None
    assert sessions.find(cookie, LIFETIME_SECONDS * 1_000_000) is None
    assert sessions.find(cookie, 5) is None
    cookie = sessions.begin(alice, 0).encode()
    for _ in range(MOST_SESSIONS):
        sessions.begin(alice, 0)
    assert sessions.find(cookie, 5) is None
    cookie = sessions.begin(alice, 0).encode()
    alice.use((), ())
    assert sessions.find(cookie, 5) is None


def test_an_identity_that_logs_in_without_end_logs_nobody_else_out() -> None:
    sessions = BrowserSessions()
    alice, mallory = Permissions("alice", READ), Permissions("mallory", READ)
    cookie, code = sessions.begin(alice, 0).encode(), sessions.make_code(alice, 0).encode()
    for _ in range(2 * MOST_SESSIONS):
        sessions.begin(mallory, 0)
        sessions.make_code(mallory, 0)
    assert sessions.find(cookie, 5) is alice
    assert sessions.use_code(code, 5) is alice
    for number in range(MOST_SESSIONS - 2):  # of many identities, the oldest one of the identity with the most goes
        sessions.begin(Permissions(f"user {number}", READ), 0)
    assert sessions.find(cookie, 5) is alice


def test_z85() -> None:
    assert z85_decoded("HelloWorld") == bytes.fromhex("864fd26fb559f75b")
    for wrong in ("Hell", "Hell~", "#####"):
        with pytest.raises(ValueError, match=r"five|multiple|character"):
            z85_decoded(wrong)
