"""Identities over HTTP: tokens, cookies, and what a browser may not be made to do."""

from __future__ import annotations

from switchgear.access.access_file import AccessEntry, AccessList
from switchgear.access.identities import Identities, ListenerAccess
from switchgear.access.tokens import digest_of
from switchgear.verbs.access import Role
from tests.protocols.http.house import HttpHouse

BEARER = {"Authorization": "Bearer token"}
SAME = {"Sec-Fetch-Site": "same-origin"}


def secured() -> tuple[HttpHouse, Identities]:
    house = HttpHouse()
    entry = AccessEntry("alice", frozenset({Role.SUBMIT}), tokens=(f"sha256:{digest_of(b'token').hex()}",))
    known = Identities(access=AccessList(identities={"alice": entry}))
    house.access = ListenerAccess(known)
    return house, known


def test_a_token_is_exchanged_for_a_cookie() -> None:
    house, _ = secured()
    begun = house.ask("page", "POST", "/v1/session", None, BEARER)
    assert begun.status == 200
    assert begun.json["identity"] == "alice"
    assert begun.json["roles"] == ["submit"]
    name, *attributes = begun.headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert begun.headers["cache-control"] == "no-store"
    cookie = {"Cookie": f"other=1; {name}"}
    assert house.ask("page", "GET", "/v1/session", None, cookie).json["identity"] == "alice"
    assert house.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 201
    crossing = house.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, "Sec-Fetch-Site": "cross-site"})
    assert (crossing.status, crossing.code) == (403, "cross_site")
    silent = house.ask("page", "POST", "/v1/functions/f/jobs", b"x", cookie)
    assert (silent.status, silent.code) == (403, "cross_site")
    house.ask("page", "DELETE", "/v1/session", None, {**cookie, **SAME})
    assert house.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 401


def test_a_cookie_of_a_removed_identity_is_worthless() -> None:
    house, known = secured()
    begun = house.ask("page", "POST", "/v1/session", None, BEARER)
    cookie = {"Cookie": begun.headers["set-cookie"].split(";")[0]}
    known.use(AccessList())
    assert house.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 401


def test_over_tls_the_cookie_is_for_tls_alone() -> None:
    house, _ = secured()
    house.peer("page").wire.is_encrypted = True
    assert house.ask("page", "POST", "/v1/session", None, BEARER).headers["set-cookie"].endswith("; Secure")


def test_wrong_tokens_are_not_taken_for_none() -> None:
    house, _ = secured()
    for header in ("Bearer wrong", "Bearer", "Basic dG9rZW46", "token", ""):
        answer = house.ask("c", "GET", "/livez", None, {"Authorization": header})
        assert (answer.status, answer.code) == (401, "invalid_token")
        assert answer.headers["www-authenticate"] == 'Bearer realm="switchgear", error="invalid_token"'
    assert house.ask("c", "GET", "/livez", None, {"Authorization": "bearer  token "}).status == 200


def test_each_request_is_asked_for_itself() -> None:
    house, _ = secured()
    assert house.ask("c", "POST", "/v1/functions/f/jobs", b"x", BEARER).status == 201
    assert house.ask("c", "POST", "/v1/functions/f/jobs", b"x").status == 401
    assert house.ask("c", "POST", "/v1/session").status == 401


def test_a_body_is_not_asked_for_in_vain() -> None:
    house, _ = secured()
    headers = {"Expect": "100-continue", "Content-Length": "5"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    peer = house.peer("c")
    peer.send(f"POST /v1/functions/f/jobs HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode(), "POST")
    assert peer.wire.written.startswith(b"HTTP/1.1 401 ")


def test_an_open_listener_needs_no_token() -> None:
    house = HttpHouse()
    begun = house.ask("c", "POST", "/v1/session", None, BEARER)
    assert begun.json["identity"] == "anonymous"
    assert begun.json["expires_at"] is None
    assert "set-cookie" not in begun.headers


def test_a_worker_belongs_to_its_identity() -> None:
    house = HttpHouse()
    tokens = {name: f"sha256:{digest_of(name.encode()).hex()}" for name in ("a", "b")}
    entries = {name: AccessEntry(name, frozenset({Role.WORK}), (), (tokens[name],)) for name in tokens}
    house.access = ListenerAccess(Identities(access=AccessList(identities=entries)))
    first, second = ({"Authorization": f"Bearer {name}"} for name in "ab")
    worker = house.ask("c", "POST", "/v1/workers", {"functions": ["f"]}, first).json["id"]
    assert house.ask("c", "POST", f"/v1/workers/{worker}/poll", None, second).status == 404
    assert house.ask("c", "DELETE", f"/v1/workers/{worker}", None, second).status == 404
    assert house.ask("c", "POST", f"/v1/workers/{worker}/poll", None, first).status == 200
