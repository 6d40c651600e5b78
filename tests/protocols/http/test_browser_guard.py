"""Pages of other sites cannot use the server through a reader's browser."""

from __future__ import annotations

import pytest

from tests.protocols.http.harness import Answer, HttpHarness

JSON = {"Content-Type": "application/json"}


def post(harness: HttpHarness, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return harness.ask("browser", "POST", "/v1/jobs", b'{"function": "f"}', {**JSON, **named})


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:4740", "a.localhost", "127.0.0.1", "127.0.0.1:4740", "[::1]:80", "10.1.2.3", "sg.lan"],
)
def test_names_of_the_server(host: str) -> None:
    harness = HttpHarness(hosts=("sg.lan",))
    assert harness.ask("c", "GET", "/livez", None, {"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "sg.lan:80x",
        "[::1",
        "",
        "a:b:c",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused_whatever_the_method(host: str) -> None:
    harness = HttpHarness(hosts=("sg.lan",))
    for method in ("GET", "POST"):
        answer = harness.ask("c", method, "/v1/jobs", None, {"Host": host})
        assert (answer.status, answer.code) == (421, "unknown_host")
    assert harness.bad_input[0][0] == "unknown_host"


def test_a_target_that_names_another_host_is_refused() -> None:
    harness = HttpHarness()
    assert harness.ask("c", "GET", "http://localhost:80/livez").status == 200
    assert harness.ask("c", "GET", "http://evil.example/livez").status == 421


def test_a_request_without_a_host() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(b"GET /livez HTTP/1.1\r\n\r\n", "GET")
    (answer,) = peer.heard()
    assert (answer.status, answer.code) == (400, "host_missing")


def test_a_program_that_is_no_browser_may_send_anything() -> None:
    harness = HttpHarness()
    answer = harness.ask(
        "curl", "POST", "/v1/jobs", b'{"function": "f"}', {"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answer.status == 201


def test_a_page_of_this_server_may_change_things() -> None:
    harness = HttpHarness()
    assert post(harness, Sec_Fetch_Site="same-origin", Origin="http://localhost").status == 201
    assert post(harness, Sec_Fetch_Site="none").status == 201
    assert post(harness, Origin="http://localhost").status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Origin": "http://localhost"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:8000"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_site_may_not(headers: dict[str, str]) -> None:
    harness = HttpHarness()
    answer = post(harness, **headers)
    assert (answer.status, answer.code) == (403, "cross_site")
    assert harness.engine.job_count() == 0


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=utf-8", "multipart/form-data; boundary=x"])
def test_a_browser_sends_no_forms(kind: str) -> None:
    answer = post(HttpHarness(), Origin="http://localhost", Content_Type=kind)
    assert (answer.status, answer.code) == (415, "form_body")


def test_other_sites_may_look_but_browsers_show_them_nothing() -> None:
    answer = HttpHarness().ask("c", "GET", "/v1/jobs", None, {"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers
