"""JSON that takes long to read is refused."""

from __future__ import annotations

import pytest

from switchgear.protocols.http.operator_requests import MOST_JSON_VALUES
from switchgear.protocols.http.request_problems import MOST_JSON_BYTES
from tests.protocols.http.harness import HttpHarness

TARGETS = ["/v1/jobs", "/v1/jobs/wait", "/v1/bulk", "/v1/workers", "/v1/verbs/jobs", "/v1/jobs/handles"]


@pytest.fixture
def harness() -> HttpHarness:
    harness = HttpHarness()
    harness.setup.packet_bytes = 2 * MOST_JSON_BYTES
    return harness


@pytest.mark.parametrize("target", TARGETS)
def test_long_json_is_refused_unread(harness: HttpHarness, target: str) -> None:
    answer = harness.ask("c", "POST", target, b"x" * (MOST_JSON_BYTES + 1))
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert harness.ask("c", "GET", "/livez").status == 200


def test_a_long_payload_has_a_body_of_its_own(harness: HttpHarness) -> None:
    start, end = b'{"function":"f","payload":"', b'"}'
    longest = start + b"x" * (MOST_JSON_BYTES - len(start) - len(end)) + end
    assert harness.ask("c", "POST", "/v1/jobs", longest).status == 201
    assert harness.ask("c", "POST", "/v1/functions/f/jobs", longest + b"x").status == 201


def test_arguments_of_very_many_values(harness: HttpHarness) -> None:
    for text in (b"[]," * MOST_JSON_VALUES, b"1," * (MOST_JSON_VALUES + 1), b"{" * (MOST_JSON_VALUES + 1)):
        answer = harness.ask("c", "POST", "/v1/verbs/jobs", b'{"a":[' + text + b"1]}")
        assert (answer.status, answer.code) == (413, "too_many_values")
