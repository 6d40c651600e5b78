"""A connection: answers in order, waiting, HEAD, announced bodies, and errors that are problems."""

from __future__ import annotations

import ast
import gzip
from pathlib import Path

import pytest

from switchgear.protocols import http
from switchgear.protocols.http.batch_requests import MOST_BATCH_BYTES
from switchgear.protocols.http.request_problems import MOST_JSON_BYTES
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.session import MOST_BEHIND
from tests.protocols.http.harness import PACKET_BYTES, HttpHarness, request


def test_a_server_that_runs_says_so() -> None:
    harness = HttpHarness()
    assert harness.ask("c", "GET", "/livez").json == {"live": True}
    assert harness.ask("c", "GET", "/readyz").json == {"ready": True, "reason": "", "loop_lag_seconds": 0.0}


def test_a_server_that_drains_is_not_ready() -> None:
    harness = HttpHarness()
    harness.engine.drain()
    answer = harness.ask("c", "GET", "/readyz")
    assert (answer.status, answer.json) == (503, {"ready": False, "reason": "draining", "loop_lag_seconds": 0.0})
    assert harness.ask("c", "GET", "/livez").status == 200


def test_a_server_that_hands_out_nothing_any_more_is_not_ready() -> None:
    harness = HttpHarness()
    harness.engine.stop_handing_out()
    assert harness.ask("c", "GET", "/readyz").json == {"ready": False, "reason": "draining", "loop_lag_seconds": 0.0}


def test_every_answer_may_neither_be_cached_nor_guessed_at() -> None:
    harness = HttpHarness()
    for target in ("/livez", "/nowhere", "/v1/jobs"):
        headers = harness.ask("c", "GET", target).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "date" in headers
        assert not any(name.startswith("access-control") for name in headers)


def test_head_is_answered_without_a_body() -> None:
    harness = HttpHarness()
    answer = harness.ask("c", "HEAD", "/livez")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "13", b"")
    assert harness.ask("c", "GET", "/livez").status == 200  # on the same connection


def test_pipelined_requests_are_answered_in_their_order() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    targets = ["/livez", "/nowhere", "/v1/functions", "/readyz", "/v1/jobs"]
    peer.send(b"".join(request("GET", target) for target in targets), *["GET"] * 5)
    assert [answer.status for answer in peer.heard()] == [200, 404, 200, 200, 200]


def test_a_request_behind_one_that_waits_is_answered_after_it() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("POST", "/v1/functions/f/take?wait=5") + request("GET", "/livez"), "POST", "GET")
    assert peer.heard() == []
    harness.pass_time(5)
    assert [answer.status for answer in peer.heard()] == [204, 200]


def test_too_much_behind_a_request_that_waits_ends_the_connection() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("POST", "/v1/functions/f/take?wait=5"), "POST")
    peer.send(request("GET", "/livez") * (MOST_BEHIND + 1))
    assert peer.wire.is_closed
    assert harness.bad_input[0][0] == "too_much_behind"
    assert not harness.engine.workers


def test_a_path_with_a_slash_too_many_names_the_right_one() -> None:
    harness = HttpHarness()
    answer = harness.ask("c", "GET", "/v1/jobs/")
    assert answer.code == "not_found"
    assert answer.json["detail"] == "there is nothing at /v1/jobs/; without the slash at its end, there is"
    for path in ("/v1/nothing/", "/v1/jobs//", "/v1/"):
        answer = harness.ask("c", "GET", path)
        assert answer.json["detail"] == f"there is nothing at {path}; GET /openapi.json lists what there is"


@pytest.mark.parametrize("body", [b"", b'{"function": "f"'])
def test_a_body_without_its_end(body: bytes) -> None:
    answer = HttpHarness().ask("c", "POST", "/v1/jobs", body)
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert answer.json["detail"] == "the body is not JSON: it is empty, or its end is missing"


@pytest.mark.parametrize("body", [b"x" * 10, b""])
def test_an_announced_body_is_asked_for(body: bytes) -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    head = request("POST", "/v1/functions/f/jobs", headers={"Expect": "100-continue", "Content-Length": str(len(body))})
    peer.send(head, "POST")
    if body:
        assert peer.heard_raw() == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.send(body)
    assert [answer.status for answer in peer.heard()] == [201]


def test_a_body_is_not_asked_for_if_the_request_is_refused_anyway() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("POST", "/v1/nothing", headers={"Expect": "100-continue", "Content-Length": "5"}), "POST")
    (answer,) = peer.heard()
    assert answer.code == "not_found"
    assert peer.wire.is_closed


@pytest.mark.parametrize(
    ("target", "size", "code"),
    [
        ("/v1/jobs", MOST_JSON_BYTES + 1, "body_too_large"),
        ("/v1/verbs/jobs", MOST_JSON_BYTES + 1, "body_too_large"),
        ("/v1/jobs/batch", MOST_BATCH_BYTES + 1, "batch_too_large"),
    ],
)
def test_a_long_body_is_refused_before_it_is_sent(target: str, size: int, code: str) -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 2 * MOST_BATCH_BYTES
    peer = harness.peer("c")
    peer.send(request("POST", target, headers={"Expect": "100-continue", "Content-Length": str(size)}), "POST")
    (answer,) = peer.heard()
    assert (answer.status, answer.code) == (413, code)
    assert peer.wire.is_closed


@pytest.mark.parametrize(
    ("target", "size"),
    [
        ("/v1/jobs", MOST_JSON_BYTES),
        ("/v1/jobs/batch", MOST_BATCH_BYTES),
        ("/v1/jobs/batch?atomic=1", MOST_BATCH_BYTES + 1),
        ("/v1/functions/f/jobs", MOST_BATCH_BYTES + 1),
    ],
)
def test_the_longest_bodies_are_asked_for(target: str, size: int) -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 2 * MOST_BATCH_BYTES
    peer = harness.peer("c")
    peer.send(request("POST", target, headers={"Expect": "100-continue", "Content-Length": str(size)}), "POST")
    assert peer.heard_raw() == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_connection_is_closed_if_the_client_says_so() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("GET", "/livez", headers={"Connection": "close"}) + request("GET", "/livez"), "GET", "GET")
    (answer,) = peer.heard()
    assert answer.headers["connection"] == "close"
    assert peer.wire.is_closed


def test_a_client_of_version_1_0() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(b"GET /livez HTTP/1.0\r\n\r\n", "GET")
    assert [answer.status for answer in peer.heard()] == [200]
    assert peer.wire.is_closed


def test_a_client_of_version_1_0_that_would_go_on() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("GET", "/livez", headers={"Connection": "keep-alive"}, version="1.0"), "GET")
    (answer,) = peer.heard()
    assert answer.headers["connection"] == "keep-alive"
    assert not peer.wire.is_closed


def test_a_client_that_stops_sending_is_still_answered() -> None:
    harness = HttpHarness(keeps=True)
    peer = harness.peer("c")
    peer.send(request("POST", "/v1/functions/f/jobs", b"x"), "POST")
    peer.session.eof()
    harness.turn()
    assert not peer.wire.is_closed
    harness.keep()
    assert [answer.status for answer in peer.heard()] == [201]
    assert peer.wire.is_closed


def test_a_batch_of_a_client_of_version_1_0_has_no_chunks() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("POST", "/v1/jobs/batch", b'{"function": "f"}\n', version="1.0"), "POST")
    assert b"chunked" not in peer.wire.written
    (answer,) = peer.heard()
    assert answer.lines == [{"line": 1, "handle": "H:t:1", "id": 1, "joined": False}]


def test_a_stream_that_is_not_http_ends_with_a_problem() -> None:
    harness = HttpHarness()
    peer = harness.peer("c")
    peer.send(request("GET", "/livez") + b"GET / HTTP/1.1\nHost: a\n\n", "GET", "GET")
    first, second = peer.heard()
    assert (first.status, second.status, second.code) == (200, 400, "malformed_request")
    assert peer.wire.is_closed
    assert harness.bad_input[0][0] == "malformed_request"


def test_a_body_that_is_too_large() -> None:
    harness = HttpHarness()
    answer = harness.ask("c", "POST", "/v1/functions/f/jobs", b"x" * (PACKET_BYTES + 1))
    assert (answer.status, answer.code) == (413, "body_too_large")


def test_what_there_is_not() -> None:
    harness = HttpHarness()
    assert harness.ask("c", "GET", "/v1/nothing").code == "not_found"
    assert harness.ask("c", "GET", "/v1/jobs/").code == "not_found"
    assert harness.ask("c", "GET", "/v1/jobs/99").code == "job_not_found"
    assert harness.ask("c", "GET", "/v1/jobs/H:other:1").code == "job_not_found"
    answer = harness.ask("c", "PUT", "/v1/jobs")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    answer = harness.ask("c", "OPTIONS", "/v1/jobs")
    assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    answer = harness.ask("c", "OPTIONS", "*")
    assert (answer.status, answer.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
    assert harness.bad_input == []  # whoever mistypes an address has not broken a protocol


@pytest.mark.parametrize(("target", "body"), [("/v1/jobs", b'{"function": "f"}'), ("/v1/functions/f/jobs", b"x")])
def test_a_compressed_body_is_refused_instead_of_passed_to_a_worker_as_it_is(target: str, body: bytes) -> None:
    harness = HttpHarness()
    answer = harness.ask("c", "POST", target, gzip.compress(body), {"Content-Encoding": "gzip"})
    assert (answer.status, answer.code) == (415, "unknown_content_coding")
    assert answer.headers["accept-encoding"] == "identity"
    assert harness.ask("c", "POST", target, body, {"Content-Encoding": "Identity"}).status == 201
    announced = {"Content-Encoding": "br", "Expect": "100-continue", "Content-Length": "3"}
    assert harness.ask("other", "POST", target, None, announced).status == 415
    assert harness.engine.next_job_id == 2


@pytest.mark.parametrize(
    ("target", "parameter", "detail"),
    [
        ("/v1/jobs?limit=many", "limit", "expected a whole number from 1 to 1000, got 'many'"),
        ("/v1/jobs?limits=3", "limits", "there is no such parameter here; there are: function, state, states, unique"),
        ("/v1/jobs?state=asleep", "state", "expected a list of waiting"),
        ("/v1/jobs?dead=perhaps", "dead", "expected true or false, got 'perhaps'"),
        ("/v1/jobs?function=a&function=b", "function", "it is given twice"),
        ("/v1/jobs?cursor=x", "cursor", "it is the `next` of another page"),
        ("/v1/jobs/1?wait=601", "wait", "expected a whole number from 0 to 600, got 601"),
    ],
)
def test_a_wrong_parameter_is_named(target: str, parameter: str, detail: str) -> None:
    harness = HttpHarness()
    harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    answer = harness.ask("c", "GET", target)
    assert (answer.status, answer.code) == (422, "invalid_parameter")
    (error,) = answer.json["errors"]
    assert error["parameter"] == parameter
    assert error["detail"].startswith(detail)


def test_a_query_that_cannot_be_read() -> None:
    assert HttpHarness().ask("c", "GET", "/v1/jobs?name=%ff").code == "malformed_query"
    assert HttpHarness().ask("c", "GET", "/v1/jobs?" + "a=b&" * 100).code == "malformed_query"
    assert HttpHarness().ask("c", "GET", "/v1/jobs?name=a%zz").code == "malformed_query"


@pytest.mark.parametrize("path", ["/v1/functions/a%zz/jobs", "/v1/functions/a%/jobs", "/v1/functions/a%4", "/v1/%zz"])
def test_a_path_that_cannot_be_read(path: str) -> None:
    harness = HttpHarness()
    answer = harness.ask("c", "POST", path, b"")
    assert (answer.status, answer.code) == (400, "malformed_path")
    assert "two hexadecimal digits" in answer.json["detail"]
    assert harness.engine.job_count() == 0


def test_the_states_of_a_list_have_two_names() -> None:
    harness = HttpHarness()
    harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    for name in ("state", "states"):
        assert len(harness.ask("c", "GET", f"/v1/jobs?{name}=ready").json["jobs"]) == 1
        assert harness.ask("c", "GET", f"/v1/jobs?{name}=running").json["jobs"] == []
    answer = harness.ask("c", "GET", "/v1/jobs?state=ready&states=running")
    assert (answer.status, answer.code) == (422, "invalid_parameter")


def test_every_handler_says_which_route_is_its() -> None:
    folder = Path(http.__file__).parent  # compiled functions have no docstrings, and their sources lie beside them
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    documented = {node.name: ast.get_docstring(node) for node in nodes}
    for route in ROUTES:
        assert documented[route.handler.__name__] == f"{route.method} {route.path}"
        assert route.summary.endswith(".")
        assert route.roles


def test_a_role_that_is_missing_is_named() -> None:
    from switchgear.access.access_file import AccessEntry, AccessList
    from switchgear.access.identities import Identities, ListenerAccess
    from switchgear.verbs.access import Role

    harness = HttpHarness()
    harness.access = ListenerAccess(Identities(access=AccessList(AccessEntry("anonymous", frozenset({Role.READ})))))
    answer = harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    assert (answer.status, answer.code) == (401, "unidentified")
    assert answer.headers["www-authenticate"] == 'Bearer realm="switchgear"'
    text = "POST /v1/functions/{function}/jobs needs the role submit, which anonymous does not have"
    assert answer.json["detail"] == text
    assert harness.ask("c", "GET", "/v1/functions").status == 200


def test_a_peer_that_leaves_leaves_nothing_behind() -> None:
    harness = HttpHarness()
    harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    harness.send("c", "GET", "/v1/jobs/1?wait=100")
    harness.send("d", "GET", "/v1/jobs/1/events")
    harness.send("e", "POST", "/v1/functions/g/take?wait=100")
    harness.send("f", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=100"})
    registered = harness.engine.memory.registration_bytes
    for name in "cdef":
        harness.leave(name)
    assert harness.engine.memory.registration_bytes < registered
    assert not harness.engine.workers
    for job_id in (1, 2):
        job = harness.engine.job(job_id)
        assert job is not None
        assert not job.subscribers  # background jobs stay


def test_health_checks_are_answered_while_the_server_may_say_nothing_else() -> None:
    harness = HttpHarness()
    harness.output.be_silent()
    peer, other = harness.peer("c"), harness.peer("d")
    peer.send(request("GET", "/livez"), "GET")
    peer.send(request("GET", "/readyz"), "GET")
    assert [answer.status for answer in peer.heard()] == [200, 200]
    peer.send(request("GET", "/v1/jobs"), "GET")
    peer.send(request("GET", "/livez"), "GET")
    other.send(request("GET", "/livez") + request("GET", "/v1/jobs"), "GET", "GET")
    assert peer.heard() == other.heard() == []
    harness.output.speak()
    harness.turn()
    assert [answer.status for answer in peer.heard()] == [200, 200]
    assert [answer.status for answer in other.heard()] == [200, 200]
