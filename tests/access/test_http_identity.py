"""Identities over HTTP: tokens, cookies, and what a browser may not be made to do."""

from __future__ import annotations

from switchgear.access.access_file import AccessEntry, AccessList
from switchgear.access.browser_sessions import LIFETIME_SECONDS, MOST_CODES
from switchgear.access.identities import Identities, ListenerAccess
from switchgear.access.tokens import digest_of
from switchgear.verbs.access import Role
from tests.protocols.http.harness import HttpHarness

BEARER = {"Authorization": "Bearer token"}
SAME = {"Sec-Fetch-Site": "same-origin"}


def secured(*more: Role) -> tuple[HttpHarness, Identities]:
    harness = HttpHarness()
    entry = AccessEntry("alice", frozenset({Role.SUBMIT, *more}), tokens=(f"sha256:{digest_of(b'token').hex()}",))
    known = Identities(access=AccessList(identities={"alice": entry}))
    harness.access = ListenerAccess(known)
    return harness, known


def test_a_token_is_exchanged_for_a_cookie() -> None:
    harness, _ = secured()
    begun = harness.ask("page", "POST", "/v1/session", None, BEARER)
    assert begun.status == 200
    assert begun.json["identity"] == "alice"
    assert begun.json["roles"] == ["submit"]
    name, *attributes = begun.headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert begun.headers["cache-control"] == "no-store"
    cookie = {"Cookie": f"other=1; {name}"}
    assert harness.ask("page", "GET", "/v1/session", None, cookie).json["identity"] == "alice"
    assert harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 201
    crossing = harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, "Sec-Fetch-Site": "cross-site"})
    assert (crossing.status, crossing.code) == (403, "cross_site")
    silent = harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", cookie)
    assert (silent.status, silent.code) == (403, "cross_site")
    harness.ask("page", "DELETE", "/v1/session", None, {**cookie, **SAME})
    assert harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 401


def test_a_cookie_of_a_removed_identity_is_worthless() -> None:
    harness, known = secured()
    begun = harness.ask("page", "POST", "/v1/session", None, BEARER)
    cookie = {"Cookie": begun.headers["set-cookie"].split(";")[0]}
    known.use(AccessList())
    assert harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", {**cookie, **SAME}).status == 401


def test_a_login_code_is_exchanged_for_a_cookie_once() -> None:
    harness, _ = secured()
    made = harness.ask("program", "POST", "/v1/session/codes", None, BEARER)
    assert (made.status, made.json["identity"]) == (201, "alice")
    assert made.headers["cache-control"] == "no-store"
    code = {"Authorization": f"Bearer {made.json['code']}"}
    elsewhere = harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", code)
    assert (elsewhere.status, elsewhere.code) == (401, "invalid_token")
    assert harness.ask("page", "POST", "/v1/session/codes", None, code).status == 401
    begun = harness.ask("page", "POST", "/v1/session", None, {**code, **SAME})
    assert (begun.status, begun.json["identity"]) == (200, "alice")
    cookie = {"Cookie": begun.headers["set-cookie"].split(";")[0], **SAME}
    assert harness.ask("page", "POST", "/v1/functions/f/jobs", b"x", cookie).status == 201
    again = harness.ask("page", "POST", "/v1/session", None, {**code, **SAME})
    assert (again.status, again.code) == (401, "invalid_token")
    # A page that has the cookie cannot prolong its session by codes.
    assert harness.ask("page", "POST", "/v1/session/codes", None, cookie).status == 403


def test_a_login_code_ends_after_a_minute() -> None:
    harness, _ = secured()
    for seconds, status in ((59, 200), (60, 401)):
        made = harness.ask("program", "POST", "/v1/session/codes", None, BEARER).json
        assert made["expires_at"] == harness.clock.now_us() / 1e6 + 60
        harness.pass_time(seconds)
        code = {"Authorization": f"Bearer {made['code']}"}
        assert harness.ask("page", "POST", "/v1/session", None, code).status == status


def test_a_login_code_of_a_removed_identity_is_worthless() -> None:
    harness, known = secured()
    code = harness.ask("program", "POST", "/v1/session/codes", None, BEARER).json["code"]
    known.use(AccessList())
    assert harness.ask("page", "POST", "/v1/session", None, {"Authorization": f"Bearer {code}"}).status == 401


def test_unused_login_codes_are_limited() -> None:
    harness, _ = secured()
    codes = [harness.ask("c", "POST", "/v1/session/codes", None, BEARER).json["code"] for _ in range(MOST_CODES + 1)]
    used = [harness.ask("c", "POST", "/v1/session", None, {"Authorization": f"Bearer {code}"}) for code in codes]
    assert [answer.status for answer in used] == [401] + MOST_CODES * [200]


def test_login_codes_need_an_identity() -> None:
    harness, _ = secured()
    assert harness.ask("c", "POST", "/v1/session/codes").status == 401
    for code in ("swg_code_", "swg_code_" + 1000 * "x", "swg_code_wrong"):
        assert harness.ask("c", "POST", "/v1/session", None, {"Authorization": f"Bearer {code}"}).status == 401
    answer = HttpHarness().ask("c", "POST", "/v1/session/codes")  # an open listener
    assert (answer.status, answer.json) == (201, {"identity": "anonymous", "code": None, "expires_at": None})


def test_over_tls_the_cookie_is_for_tls_alone() -> None:
    harness, _ = secured()
    harness.peer("page").wire.is_encrypted = True
    assert harness.ask("page", "POST", "/v1/session", None, BEARER).headers["set-cookie"].endswith("; Secure")


def test_wrong_tokens_are_not_taken_for_none() -> None:
    harness, _ = secured()
    for header in ("Bearer wrong", "Bearer", "Basic dG9rZW46", "token", ""):
        answer = harness.ask("c", "GET", "/livez", None, {"Authorization": header})
        assert (answer.status, answer.code) == (401, "invalid_token")
        assert answer.headers["www-authenticate"] == 'Bearer realm="switchgear", error="invalid_token"'
    assert harness.ask("c", "GET", "/livez", None, {"Authorization": "bearer  token "}).status == 200


def test_each_request_is_asked_for_itself() -> None:
    harness, _ = secured()
    assert harness.ask("c", "POST", "/v1/functions/f/jobs", b"x", BEARER).status == 201
    assert harness.ask("c", "POST", "/v1/functions/f/jobs", b"x").status == 401
    assert harness.ask("c", "POST", "/v1/session").status == 401


def test_a_body_is_not_asked_for_in_vain() -> None:
    harness, _ = secured()
    headers = {"Expect": "100-continue", "Content-Length": "5"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    peer = harness.peer("c")
    peer.send(f"POST /v1/functions/f/jobs HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode(), "POST")
    assert peer.wire.written.startswith(b"HTTP/1.1 401 ")


def test_an_open_listener_needs_no_token() -> None:
    harness = HttpHarness()
    begun = harness.ask("c", "POST", "/v1/session", None, BEARER)
    assert begun.json["identity"] == "anonymous"
    assert begun.json["expires_at"] is None
    assert "set-cookie" not in begun.headers


def test_a_worker_belongs_to_its_identity() -> None:
    harness = HttpHarness()
    tokens = {name: f"sha256:{digest_of(name.encode()).hex()}" for name in ("a", "b")}
    entries = {name: AccessEntry(name, frozenset({Role.WORK}), (), (tokens[name],)) for name in tokens}
    harness.access = ListenerAccess(Identities(access=AccessList(identities=entries)))
    first, second = ({"Authorization": f"Bearer {name}"} for name in "ab")
    worker = harness.ask("c", "POST", "/v1/workers", {"functions": ["f"]}, first).json["id"]
    assert harness.ask("c", "POST", f"/v1/workers/{worker}/poll", None, second).status == 404
    assert harness.ask("c", "DELETE", f"/v1/workers/{worker}", None, second).status == 404
    assert harness.ask("c", "POST", f"/v1/workers/{worker}/poll", None, first).status == 200


def test_the_event_stream_of_a_browser_ends_with_its_session() -> None:
    harness, _ = secured(Role.READ)
    begun = harness.ask("page", "POST", "/v1/session", None, BEARER)
    cookie = {"Cookie": begun.headers["set-cookie"].split(";")[0]}
    harness.pass_time(LIFETIME_SECONDS - 5)
    harness.send("page", "GET", "/v1/events?topics=overview", None, cookie)
    harness.send("program", "GET", "/v1/events?topics=overview", None, BEARER)
    harness.pass_time(4)
    assert not harness.peer("page").heard_raw().endswith(b"0\r\n\r\n")
    harness.pass_time(2)
    assert harness.peer("page").heard_raw().endswith(b"0\r\n\r\n")
    assert not harness.peer("program").heard_raw().endswith(b"0\r\n\r\n")
    assert harness.ask("page", "GET", "/v1/session", None, cookie).json["identity"] == "anonymous"


def test_servers_at_several_ports_of_a_host_have_cookies_of_their_own() -> None:
    first, second = secured()[0], secured()[0]
    second.setup.cookie_name = first.setup.cookie_name + b"_other"
    cookies = [each.ask("page", "POST", "/v1/session", None, BEARER).headers["set-cookie"] for each in (first, second)]
    both = {"Cookie": "; ".join(cookie.split(";")[0] for cookie in cookies)}
    for each in (first, second):
        assert each.ask("page", "GET", "/v1/session", None, both).json["identity"] == "alice"
