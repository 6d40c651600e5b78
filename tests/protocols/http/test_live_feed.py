"""`GET /v1/events`: snapshots, deltas, resuming, slow viewers, and nothing while nobody looks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import NORMAL, Delivery, Job
from switchgear.protocols.http import live_feed
from switchgear.protocols.http.live_feed import LiveFeed
from tests.protocols.http.harness import HttpHarness

Event = tuple[str, Any]


def unchunked(data: bytes) -> bytes:
    """The body of an answer in chunks that is not over."""
    head, _, rest = data.partition(b"\r\n\r\n") if data.startswith(b"HTTP/") else (b"", b"", data)
    assert not head or b"text/event-stream" in head
    assert not head or b"X-Accel-Buffering: no" in head
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


def events_in(body: bytes) -> Iterator[Event]:
    """The events and ids in a stream."""
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "id" in fields:
            yield "id", int(fields["id"])
        elif fields:
            yield fields["event"], json.loads(fields["data"])


class Viewers(HttpHarness):
    """A harness with viewers."""

    def watch(self, name: str, topics: str, seen: int | None = None) -> list[Event]:
        """Begin to watch, and the first events."""
        self.send(
            name, "GET", f"/v1/events?topics={topics}", None, {} if seen is None else {"Last-Event-ID": str(seen)}
        )
        return self.events(name)

    def events(self, name: str) -> list[Event]:
        return list(events_in(unchunked(self.peer(name).heard_raw())))

    def submit(self, function: bytes = b"f", **options: Any) -> Job:
        job = self.engine.submit(function, b"", b"", NORMAL, Delivery.HANDLE, **options)
        self.turn()
        return job

    @property
    def feed(self) -> LiveFeed:
        feed: LiveFeed = self.setup.shared.feed
        return feed


def last_id(events: list[Event]) -> int:
    name, number = events[-1]
    assert name == "id"
    assert isinstance(number, int)
    return number


def test_a_snapshot_and_then_what_has_changed() -> None:
    harness = Viewers()
    harness.submit()
    (name, first), (_, begun) = harness.watch("v", "overview")
    assert (name, first["kind"]) == ("overview", "snapshot")
    assert first["data"]["jobs"]["ready"] == 1
    harness.submit()
    harness.pass_time(0.4)
    assert harness.events("v") == []
    harness.pass_time(0.1)
    (name, delta), (_, number) = harness.events("v")
    assert (name, delta["kind"], number) == ("overview", "delta", begun + 1)
    assert delta["data"]["jobs"]["ready"] == 2
    assert "version" not in delta["data"]
    assert "uptime_seconds" not in delta["data"]


def test_nothing_is_sent_if_nothing_changes_except_a_comment() -> None:
    harness = Viewers()
    harness.watch("v", "functions")
    harness.pass_time(14)
    assert harness.peer("v").heard_raw() == b""
    harness.pass_time(1.1)
    assert b": still here\n\n" in harness.peer("v").heard_raw()


def test_functions_are_rows() -> None:
    harness = Viewers()
    harness.submit(b"f")
    harness.submit(b"g\xff")
    ((_, first), _) = harness.watch("v", "functions")
    rows = [dict(zip(first["data"]["columns"], row, strict=True)) for row in first["data"]["rows"]]
    assert [row["name"] for row in rows] == ["f", {"base64": "Z/8="}]
    assert rows[0]["ready"] == rows[0]["submitted"] == 1
    assert rows[0]["oldest_ready_at"] == harness.engine.now_us / 1e6
    harness.submit(b"f")
    harness.pass_time(0.5)
    ((_, delta), _) = harness.events("v")
    assert [row[0] for row in delta["data"]["rows"]] == ["f"]
    assert delta["data"]["gone"] == []
    harness.engine.cancel(next(harness.engine.ready_jobs(harness.engine.functions[b"g\xff"])))
    assert harness.engine.drop_function(harness.engine.functions[b"g\xff"])
    harness.pass_time(0.5)
    ((_, delta), _) = harness.events("v")
    assert delta["data"] == {"rows": [], "gone": [{"base64": "Z/8="}]}


def test_workers_are_rows() -> None:
    harness = Viewers()
    assert harness.watch("v", "workers")[0][1]["data"]["rows"] == []
    harness.submit()
    assert harness.ask("w", "POST", "/v1/functions/f/take").status == 200
    harness.pass_time(0.5)
    ((_, delta), _) = harness.events("v")
    (row,) = delta["data"]["rows"]
    assert row[1:8] == ["", "http", "127.0.0.1:0", 1, 1, "H:t:1", "f"]


def test_a_job_from_its_submission_to_its_end() -> None:
    harness = Viewers()
    harness.submit()
    ((name, first), _) = harness.watch("v", "job:H:t:1")
    assert (name, first["data"]["state"], first["data"]["finished_at"]) == ("job", "ready", None)
    assert harness.ask("w", "POST", "/v1/functions/f/take").status == 200
    harness.pass_time(0.5)
    assert harness.events("v")[0][1]["data"]["state"] == "running"
    answer = harness.ask("w", "POST", "/v1/jobs/H:t:1/fail", {"error": "no"}, {"Switchgear-Attempt": "1"})
    assert answer.status == 204
    harness.pass_time(1)
    ended = harness.events("v")[0][1]["data"]
    assert (ended["state"], ended["error"], ended["handle"]) == ("failed", "no", "H:t:1")
    assert ended["finished_at"]
    harness.pass_time(5)
    assert harness.events("v") == []
    assert harness.ask("c", "POST", "/v1/jobs/H:t:1/retry").status == 200
    harness.pass_time(0.5)
    assert harness.events("v")[0][1]["data"]["state"] == "ready"


def test_a_job_that_has_ended_long_ago() -> None:
    harness = Viewers()
    job = harness.submit()
    harness.engine.cancel(job)
    harness.turn()
    assert harness.watch("v", "job:1")[0][1]["data"]["state"] == "cancelled"


def test_many_viewers_are_told_the_same_and_it_is_computed_once() -> None:
    harness = Viewers()
    for number in range(5):
        harness.watch(f"v{number}", "overview,functions")
    asked: list[str] = []
    operate = harness.operate_in_steps

    def counted(verb: str, arguments: dict[str, Any], answer: list[Any]) -> Any:
        asked.append(verb)
        return operate(verb, arguments, answer)

    harness.operate_in_steps = counted  # type: ignore[method-assign]
    harness.submit()
    harness.pass_time(0.5)
    told = {harness.peer(f"v{number}").heard_raw() for number in range(5)}
    assert len(told) == 1
    assert asked == ["overview"]


def test_nothing_is_computed_when_nobody_looks_and_then_all_is_forgotten() -> None:
    harness = Viewers()
    held = harness.engine.memory.held_bytes
    harness.watch("v", "overview,functions,workers")
    assert harness.engine.memory.subscription_bytes > 0
    harness.leave("v")
    harness.operate_in_steps = None  # type: ignore[method-assign, assignment]
    harness.pass_time(31)
    assert harness.feed.topics
    harness.pass_time(2)
    assert not harness.feed.topics
    assert not harness.feed.ring
    assert harness.engine.memory.held_bytes == held
    assert harness.engine.next_deadline_us is None
    assert harness.setup.streams == 0


def test_viewers_that_come_and_go_with_topics_of_their_own_leave_few_behind() -> None:
    """Each tick looks at every topic, and a topic without viewers is kept for a while."""
    harness = Viewers()
    jobs = [harness.submit() for _ in range(2 * live_feed.MOST_UNWATCHED)]
    harness.watch("stays", f"job:{jobs[0].id}")
    for first in range(1, len(jobs), 16):
        harness.watch("v", ",".join(f"job:{job.id}" for job in jobs[first : first + 16]))
        harness.leave("v")
    assert list(harness.feed.unwatched) == [f"job:{job.id}" for job in jobs[-live_feed.MOST_UNWATCHED :]]
    assert len(harness.feed.topics) == live_feed.MOST_UNWATCHED + 1
    assert [name for name, _ in harness.watch("v", f"job:{jobs[1].id}")] == ["job", "id"]
    harness.leave("v")
    harness.leave("stays")
    harness.pass_time(33)
    assert not harness.feed.topics
    assert not harness.feed.unwatched


# --- coming back ---


def test_who_comes_back_is_told_what_was_missed() -> None:
    harness = Viewers()
    harness.watch("other", "functions")
    seen = last_id(harness.watch("v", "functions"))
    harness.leave("v")
    for _ in range(3):
        harness.submit()
        harness.pass_time(0.5)
    events = harness.watch("v", "functions", seen)
    assert [name for name, _ in events] == ["functions", "id"] * 3
    assert [data["kind"] for name, data in events if name == "functions"] == ["delta"] * 3
    assert [data for name, data in events if name == "id"] == [seen + 1, seen + 2, seen + 3]


def test_the_only_viewer_comes_back_and_is_told_the_difference() -> None:
    harness = Viewers()
    harness.submit(b"g")
    seen = last_id(harness.watch("v", "functions"))
    harness.leave("v")
    for _ in range(3):
        harness.submit()
        harness.pass_time(5)
    ((_, delta), (_, number)) = harness.watch("v", "functions", seen)
    assert (delta["kind"], number) == ("delta", seen + 1)
    assert [row[:2] for row in delta["data"]["rows"]] == [["f", 3]]


@pytest.mark.parametrize("seen", [0, 1, 10**15, 10**18])
def test_who_was_away_for_too_long_or_never_there_starts_anew(seen: int) -> None:
    harness = Viewers()
    harness.watch("other", "functions")
    (name, reset), (_, snapshot), _ = harness.watch("v", "functions", seen)
    assert (name, reset) == ("reset", {"topics": ["functions"]})
    assert snapshot["kind"] == "snapshot"


def test_the_ring_is_bounded() -> None:
    harness = Viewers()
    seen = last_id(harness.watch("v", "functions"))
    for _ in range(100):
        harness.submit()
        harness.pass_time(0.5)
    assert len(harness.feed.ring) == live_feed.RING_TICKS
    assert harness.watch("late", "functions", seen)[0][0] == "reset"
    harness.feed.most_ring_bytes = 1_000
    harness.submit()
    harness.pass_time(0.5)
    assert sum(tick.size for tick in harness.feed.ring) <= 1_000


def test_a_topic_that_began_later_needs_a_snapshot() -> None:
    harness = Viewers()
    seen = last_id(harness.watch("v", "functions"))
    harness.watch("other", "workers")
    assert harness.watch("w", "functions,workers", seen)[0] == ("reset", {"topics": ["functions", "workers"]})


# --- slow viewers ---


def test_a_slow_viewer_loses_ticks_and_not_its_connection() -> None:
    harness = Viewers()
    harness.watch("v", "functions")
    wire = harness.peer("v").wire
    type(wire).unsent_bytes = property(lambda self: getattr(self, "unread", 0))  # type: ignore[assignment]
    try:
        wire.unread = live_feed.BEHIND_BYTES + 1  # type: ignore[attr-defined]
        for _ in range(3):
            harness.submit()
            harness.pass_time(0.5)
        assert harness.events("v") == []
        wire.unread = 0  # type: ignore[attr-defined]
        harness.pass_time(0.5)
        assert [name for name, _ in harness.events("v")] == ["functions", "id"] * 3
        wire.unread = live_feed.BEHIND_BYTES + 1  # type: ignore[attr-defined]
        for _ in range(100):
            harness.submit()
            harness.pass_time(0.5)
        wire.unread = 0  # type: ignore[attr-defined]
        harness.pass_time(0.5)
        (name, _), (_, snapshot), _ = harness.events("v")
        assert (name, snapshot["data"]["rows"][0][1]) == ("reset", 103)
        assert not wire.is_closed
    finally:
        del type(wire).unsent_bytes


# --- refusals ---


@pytest.mark.parametrize("topics", ["", "nothing", "overview,", "overview,x", "job", "a" * 1000])
def test_an_unknown_topic(topics: str) -> None:
    answer = HttpHarness().ask("c", "GET", f"/v1/events?topics={topics}")
    assert (answer.status, answer.code) == (422, "invalid_parameter")
    assert answer.json["errors"][0]["parameter"] == "topics"


@pytest.mark.parametrize("job", ["job:", "job:0", "job:1", "job:x", "job:H:t:9", "job:999999999999999999999"])
def test_an_unknown_job(job: str) -> None:
    assert HttpHarness().ask("c", "GET", f"/v1/events?topics={job}").code == "job_not_found"


def test_too_many_jobs() -> None:
    harness = Viewers()
    for _ in range(17):
        harness.submit()
    topics = ",".join(f"job:{number}" for number in range(1, 18))
    assert harness.ask("c", "GET", f"/v1/events?topics={topics}").status == 422
    assert len(harness.watch("v", f"{topics.rpartition(',')[0]},job:H:t:1")) == 17


def test_too_many_streams() -> None:
    harness = Viewers()
    for number in range(live_feed.MOST_STREAMS):
        harness.watch(f"v{number}", "overview")
    answer = harness.ask("c", "GET", "/v1/events")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many_streams", "5")
    harness.leave("v0")
    assert harness.watch("late", "overview")


def test_no_memory_for_a_viewer() -> None:
    harness = Viewers(settings=EngineSettings(memory_bytes=1_000))
    harness.engine.memory.job_bytes = 10**9
    assert harness.ask("c", "GET", "/v1/events").status == 429
    harness.engine.memory.job_bytes = 0


def test_head_has_no_end_to_wait_for() -> None:
    answer = HttpHarness().ask("c", "HEAD", "/v1/events")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")


def test_http_1_0_is_sent_no_chunks() -> None:
    harness = Viewers()
    harness.peer("v").send(b"GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n", "GET")
    head, _, body = harness.peer("v").heard_raw().partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"event: overview\n")


def test_requests_behind_a_stream_wait_and_are_bounded() -> None:
    harness = Viewers()
    harness.watch("v", "overview")
    harness.send("v", "GET", "/v1/server")
    harness.pass_time(1)
    assert b'uptime_seconds":' not in harness.peer("v").heard_raw()
    assert len(harness.peer("v").session.requests) == 1
