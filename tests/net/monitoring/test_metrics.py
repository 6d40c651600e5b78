"""The figures for monitoring systems, read by the parsers of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from switchgear.engine.engine import SubmitOptions
from switchgear.model import NORMAL, SECOND_US, Delivery, Function
from switchgear.net.monitoring.function_series import FunctionSeries, FunctionSums
from switchgear.net.monitoring.loop_lag import LoopLag
from switchgear.net.monitoring.metrics import METRICS, Metrics
from switchgear.net.monitoring.metrics_text import label, label_text
from tests.net.harness import HubHarness, in_turns, open_harness
from tests.net.operator_harness import OperatorHarness

REQUESTS = {"GET /v1/jobs": {200: 3}, "other": {404: 1}}


def text_of(metrics: Metrics, *, is_open: bool = False) -> str:
    return b"".join(metrics.write(is_open, REQUESTS)).decode()


def families(text: str, *, is_open: bool = False) -> dict[str, Family]:
    found: Iterable[Family] = parse_open(text) if is_open else parse_text(text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in found}


def value(text: str, sample_name: str, **labels: str) -> float:
    for family in families(text).values():
        for sample in family.samples:
            if sample.name == sample_name and sample.labels == labels:
                return float(sample.value)
    raise AssertionError(f"there is no {sample_name} {labels}")


def submit(harness: HubHarness, function: bytes, **options: Any) -> int:
    job = harness.engine.submit(function, b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(**options))
    return job.id


async def opened() -> tuple[HubHarness, Metrics]:
    harness = await open_harness()
    return harness, Metrics(harness.hub, LoopLag())


# --- formats ---


@in_turns
async def test_both_formats_can_be_read_and_have_every_metric_of_the_table() -> None:
    harness, metrics = await opened()
    submit(harness, b"f")
    open_text = text_of(metrics, is_open=True)
    assert open_text.endswith("# EOF\n")
    for is_open, text in ((False, text_of(metrics)), (True, open_text)):
        read = families(text, is_open=is_open)
        for metric in METRICS.values():
            name = metric.family if metric.kind in ("counter", "info") and is_open else metric.name
            family = read[name if is_open else name.removesuffix("_total")]
            assert family.type == ("gauge" if metric.kind == "info" and not is_open else metric.kind)
            assert family.documentation == metric.help
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(metric.labels), sample


@in_turns
async def test_every_family_is_in_one_piece() -> None:
    harness, metrics = await opened()
    submit(harness, b"f")
    names = [line.split()[2] for line in text_of(metrics).splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) == len(METRICS)


@in_turns
async def test_a_server_without_anything_has_figures_too() -> None:
    _, metrics = await opened()
    text = text_of(metrics)
    assert value(text, "switchgear_storage_up") == 1
    assert value(text, "switchgear_events_total", event="job_died") == 0
    assert 'function="' not in text


# --- figures ---


@in_turns
async def test_counts_of_a_function() -> None:
    harness, metrics = await opened()
    worker = harness.engine.add_worker(harness.connect().session, "gearman")
    harness.engine.can_do(worker, harness.engine.function_named(b"f"))
    submit(harness, b"f")
    submit(harness, b"f", run_at_us=harness.engine.now_us + 100 * SECOND_US)
    running = submit(harness, b"f")
    assert harness.engine.take(worker) is not None
    text = text_of(metrics)
    for state, count in {"ready": 1, "running": 1, "waiting": 0, "scheduled": 1}.items():
        assert value(text, "switchgear_queue_jobs", function="f", state=state) == count
    assert value(text, "switchgear_jobs_submitted_total", function="f") == 3
    assert value(text, "switchgear_queue_ready_jobs", function="f", priority="normal") == 1
    assert value(text, "switchgear_function_workers", function="f") == 1
    assert value(text, "switchgear_function_paused", function="f") == 0
    assert value(text, "switchgear_job_wait_seconds_count", function="f") == 1
    assert value(text, "switchgear_job_wait_seconds_bucket", function="f", le="+Inf") == 1
    assert value(text, "switchgear_workers", protocol="gearman") == 1
    harness.engine.pause(harness.engine.function_named(b"f"))
    harness.engine.cancel(harness.engine.jobs[running])
    text = text_of(metrics)
    assert value(text, "switchgear_function_paused", function="f") == 1
    assert value(text, "switchgear_jobs_cancelled_total", function="f") == 1


@in_turns
async def test_the_age_of_the_oldest_ready_job() -> None:
    harness, metrics = await opened()
    submit(harness, b"f")
    harness.engine.advance(harness.engine.now_us + 90 * SECOND_US)
    submit(harness, b"f")
    assert value(text_of(metrics), "switchgear_oldest_ready_seconds", function="f") == 90


@in_turns
async def test_requests_and_events_are_counted() -> None:
    harness, metrics = await opened()
    harness.hub.telemetry.emit("server_stopped")
    text = text_of(metrics)
    assert value(text, "switchgear_events_total", event="server_stopped") == 1
    assert value(text, "switchgear_http_requests_total", route="GET /v1/jobs", status="200") == 3


@in_turns
async def test_commits_are_timed() -> None:
    harness, metrics = await opened()
    before = value(text_of(metrics), "switchgear_commit_seconds_count")
    harness.store.obedient = True
    harness.hub.commits.start()
    await harness.hub.commits.wait()
    assert value(text_of(metrics), "switchgear_commit_seconds_count") > before


# --- names of functions ---

HOSTILE = [
    b'"', b"\\", b"\n", b'a"} 1\nswitchgear_storage_up 0\n', b"\\n", b"\r", b"\0", b"\xff\xfe", b"\xf0\x9f\x90\x8e",
    b"\xe2\x80\xa8", b"{", b"}", b",", b"=", b"# EOF", b" ", b"x" * 5_000, b"\x1b[31m", b"other",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("is_open", [False, True])
def test_no_name_can_forge_a_line(name: bytes, is_open: bool) -> None:
    @in_turns
    async def check() -> None:
        harness, metrics = await opened()
        submit(harness, name)
        text = text_of(metrics, is_open=is_open)
        read = families(text, is_open=is_open)
        (sample,) = [sample for sample in read["switchgear_jobs_submitted"].samples if sample.name.endswith("_total")]
        assert sample.labels == {"function": label_text(name)}
        assert sample.value == 1
        assert [sample.value for sample in read["switchgear_storage_up"].samples] == [1]

    check()


def test_labels_are_escaped() -> None:
    assert label("function", 'a"b\\c\nd') == r'function="a\"b\\c\nd"'
    assert label_text(b"caf\xc3\xa9") == "café"
    assert label_text(b"caf\xe9") == r"caf\xe9"
    assert len(label_text(b"x" * 5_000)) == 256


# --- very many functions ---


def function_of(name: str, submitted: int) -> Function:
    function = Function(name.encode())
    function.submitted = submitted
    return function


def summed(series: FunctionSeries, *functions: Function) -> dict[str, int]:
    """What is submitted, by the text of the function."""
    for _ in series.place(list(functions)):
        pass
    sums = FunctionSums()
    for _ in series.sum_others(sums, 0):
        pass
    named = {function.name.decode(): function.submitted for function in series.named}
    return {**named, "other": sums.counters["submitted"]}


def test_functions_beyond_the_limit_are_one() -> None:
    one, two, three = (function_of(name, count) for name, count in (("a", 1), ("b", 10), ("c", 100)))
    assert summed(FunctionSeries(1), one, two, three) == {"a": 1, "other": 110}


def test_no_function_moves_between_the_named_and_the_others() -> None:
    """Otherwise its counters would seem to have counted everything again."""
    one, two, three = (function_of(name, count) for name, count in (("a", 1), ("b", 10), ("c", 100)))
    series = FunctionSeries(1)
    assert summed(series, one, two) == {"a": 1, "other": 10}
    assert summed(series, two, one) == {"a": 1, "other": 10}
    one.dropped = True
    assert summed(series, two, three) == {"c": 100, "other": 10}


def test_what_forgotten_functions_counted_stays_in_the_sum() -> None:
    one, two = function_of("a", 1), function_of("b", 10)
    series = FunctionSeries(1)
    summed(series, one, two)
    two.dropped = True
    assert summed(series, one) == {"a": 1, "other": 10}
    assert not series.others


def test_names_that_look_alike_do_not_make_a_sample_twice() -> None:
    one, two = Function(b"\xff"), Function(rb"\xff")
    series = FunctionSeries()
    for _ in series.place([one, two]):
        pass
    assert list(series.named) == [one]
    assert list(series.others) == [two]


@in_turns
async def test_ten_thousand_functions_are_written_in_short_pieces() -> None:
    harness, metrics = await opened()
    for number in range(10_000):
        submit(harness, b"f%d" % number)
    text = text_of(metrics)
    assert value(text, "switchgear_jobs_submitted_total", function="other") == 9_500
    assert value(text, "switchgear_queue_jobs", function="other", state="ready") == 9_500
    assert text.count("switchgear_jobs_done_total{") == 501
    assert max(map(len, metrics.write(False, {}))) < 100_000
    assert sum(1 for _ in metrics.write(False, {})) > 500


# --- the delay of the event loop ---


@in_turns
async def test_the_longest_delay_is_told_for_two_windows() -> None:
    lag = LoopLag()
    lag.note(0.5, 1.0)
    lag.note(0.1, 16.0)
    assert lag.seconds == 0.5
    lag.note(0.2, 32.0)
    assert lag.seconds == 0.2
    lag.note(0.0, 1_000.0)
    assert lag.seconds == 0.0


# --- protocols ---


@in_turns
async def test_jobs_are_counted_by_the_protocols_of_submitter_and_worker() -> None:
    harness, metrics = await opened()
    assert "switchgear_flow_jobs_total{" not in text_of(metrics)
    worker = harness.engine.add_worker(harness.connect().session, "gearman")
    harness.engine.can_do(worker, harness.engine.function_named(b"f"))
    for number in range(3):
        job_id = submit(harness, b"f")
        assert harness.engine.take(worker) is not None
        if number:
            harness.engine.complete(worker, job_id, b"")
        else:
            harness.engine.fail(worker, job_id)
    lines = [line for line in text_of(metrics).splitlines() if line.startswith("switchgear_flow_jobs_total{")]
    assert lines == ['switchgear_flow_jobs_total{submitter="unknown",worker="gearman"} 3']


def test_dead_jobs_are_counted_by_function() -> None:
    operator = OperatorHarness()
    operator.submit(crash_limit=1)
    operator.take()
    operator.engine.remove_worker(operator.worker)  # while it has the job
    (function,) = operator.ask("functions")
    assert (function["dead"], function["failed"]) == (1, 1)
