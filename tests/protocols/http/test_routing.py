"""`Router`: a request that differs from an earlier one in its target alone is understood as if it came first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.codec import RequestDecoder
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Router
from switchgear.protocols.http.session_setup import HttpSetup

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
SEGMENTS = [
    *["", "v1", "jobs", "functions", "workers", "batch", "wait", "handles", "H:a:1", "H:a:2", "17", "a%2Fb"],
    *["%", "..", ".", "result", "result?x=1", "take", "take?wait=3", "fail", "poll?max=5", "graph", "x", "?", "x?"],
]  # fmt: skip
targets = st.lists(st.sampled_from(SEGMENTS), max_size=5).map(lambda words: "/" + "/".join(words))
usual = st.sampled_from(
    [
        *["/v1/jobs/H:a:{}/result", "/v1/functions/f{}/take", "/v1/workers/w-{}/poll?max=3", "/v1/jobs/{}"],
        *["/v{}/jobs/H:a:x/result", "/v1/functions/f{}/take?wait=30", "/v1/jobs/H:{}:x/result", "/v1/jobs/x/result{}"],
    ]
).flatmap(lambda text: st.integers(1, 12).map(text.format))


def request(method: str, target: str) -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()


def understood(router: Router, reader: RequestDecoder, data: bytes) -> Any:
    """What is made of a request: its route, its parameters, or the problem with it."""
    found = reader.feed(data)
    if not found:
        return None if reader.failure is None else (reader.failure.status, reader.failure.code)
    (read,) = found
    plan = router.plan(read.head)
    if plan.problem is not None:
        return plan.problem.status, plan.problem.code, str(plan.problem)
    assert plan.route is not None
    return plan.route.method, plan.route.path, dict(plan.path), dict(plan.query), dict(plan.given), plan.is_simple


def new_setup() -> HttpSetup:
    return HttpSetup(Router(ROUTES, BrowserGuard(())), b"H:a:", 1000, 64)


@given(
    st.lists(st.sampled_from(METHODS), min_size=1, max_size=3).flatmap(
        lambda methods: st.lists(
            st.tuples(st.sampled_from(methods), st.one_of(usual, usual, targets)), min_size=1, max_size=12
        )
    )
)
def test_earlier_requests_do_not_matter(some: list[tuple[str, str]]) -> None:
    warm = new_setup()
    reader = RequestDecoder(warm.heads, 1000)
    for method, target in some:
        fresh = new_setup()
        data = request(method, target)
        expected = understood(fresh.router, RequestDecoder(fresh.heads, 1000), data)
        assert understood(warm.router, reader, data) == expected


@pytest.mark.parametrize(
    "target",
    [
        "/v1/jobs/result", "/v1/jobs//result", "/v1/jobs/a/b/result", "/v1/jobs/a?b/result", "/v1/jobs/a%2Fb/result",
        "/v1/jobs/batch/result", "/v1/jobs/H:a:3/result?", "/v1/jobs/H:a:3/result/",
        "/v1/jobs/" + "x" * 9000 + "/result",
        "/v1/jobs/\x01/result", "/v1/jobs/a\tb/result", "/v1/jobs/a\r\nX: y/result",
    ],
)  # fmt: skip
def test_targets_that_nearly_fit_a_pattern(target: str) -> None:
    warm, fresh = new_setup(), new_setup()
    reader = RequestDecoder(warm.heads, 1000)
    for number in range(3):
        assert understood(warm.router, reader, request("PUT", f"/v1/jobs/H:a:{number}/result"))[2] == {
            "handle": f"H:a:{number}".encode()
        }
    expected = understood(fresh.router, RequestDecoder(fresh.heads, 1000), request("PUT", target))
    assert understood(warm.router, reader, request("PUT", target)) == expected


def test_requests_that_differ_in_a_number_are_understood_by_their_own() -> None:
    setup = new_setup()
    reader = RequestDecoder(setup.heads, 1000)
    for number in (*range(10, 99), *range(100, 120)):  # a worker takes one job after the other
        take = understood(setup.router, reader, request("POST", "/v1/functions/f/take"))
        assert take[:3] == ("POST", "/v1/functions/{function}/take", {"function": b"f"})
        report = understood(setup.router, reader, request("PUT", f"/v1/jobs/H:a:{number}/result"))
        assert report[:3] == ("PUT", "/v1/jobs/{handle}/result", {"handle": b"H:a:%d" % number})
