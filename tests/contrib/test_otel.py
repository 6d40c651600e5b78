"""Spans of OpenTelemetry: submitters and workers, links and parents, in memory and over OTLP."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import switchgear
from switchgear.contrib.otel import instrument
from switchgear.errors import JobFailed
from switchgear.testing import InMemoryServer, in_memory
from tests.client.background import url_of
from tests.support.servers import running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually


class Spans:
    """The spans that were ended so far."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    with in_memory(switchgear.App("gearman://127.0.0.1:1")) as server:
        yield server


@pytest.fixture
def app(server: InMemoryServer) -> switchgear.App:
    return server.app


def shop(app: switchgear.App) -> None:
    """Tasks of all kinds."""

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="flaky", retries=1, backoff=0)
    def flaky() -> int:
        if switchgear.current_job().attempt == 1:
            raise ValueError("not yet")
        return 7

    @app.task(name="broken")
    def broken() -> None:
        raise KeyError("lost")

    @app.task(name="context")
    def context() -> str:
        return f"{get_current_span().get_span_context().trace_id:032x} {switchgear.current_job().trace}"

    @app.task(name="async_double")
    async def async_double(number: int) -> int:
        return 2 * number


@pytest.mark.parametrize("task", ["double", "async_double"])
def test_an_attempt_is_a_trace_of_its_own_with_a_link(app: switchgear.App, spans: Spans, task: str) -> None:
    shop(app)
    instrument(app, tracer_provider=spans.provider)
    with spans.provider.get_tracer("test").start_as_current_span("request") as request:
        job = app.tasks[task].submit(21)
        assert job.result() == 42
    send, process = spans.one(f"send {task}"), spans.one(f"process {task}")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is None
    assert process.context.trace_id != send.context.trace_id
    (link,) = process.links
    assert (link.context.trace_id, link.context.span_id) == (send.context.trace_id, send.context.span_id)
    for span, operation in ((send, "send"), (process, "process")):
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "switchgear"
        assert span.attributes["messaging.destination.name"] == task
        assert span.attributes["messaging.operation.type"] == operation
        assert span.attributes["messaging.message.id"] == job.handle


def test_with_parent_an_attempt_is_a_child(app: switchgear.App, spans: Spans) -> None:
    shop(app)
    instrument(app, parent=True, tracer_provider=spans.provider)
    assert app.tasks["double"].submit(1).result() == 2
    send, process = spans.one("send double"), spans.one("process double")
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id
    assert not process.links


def test_each_attempt_has_a_span_with_its_outcome(server: InMemoryServer, spans: Spans) -> None:
    app = server.app
    shop(app)
    instrument(app, tracer_provider=spans.provider)
    job = app.tasks["flaky"].submit()
    server.advance(1)
    assert job.result() == 7
    with pytest.raises(JobFailed):
        app.tasks["broken"].submit().result()
    first, second = spans.named("process flaky")
    broken = spans.one("process broken")
    outcomes = [(span.attributes or {}).get("switchgear.job.outcome") for span in (first, second, broken)]
    assert outcomes == ["retry", "done", "failed"]
    assert [(span.attributes or {})["switchgear.job.attempt"] for span in (first, second)] == [1, 2]
    assert [span.status.status_code for span in (first, second, broken)] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    (event,) = broken.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "KeyError"
    assert "Traceback" in str(event.attributes["exception.stacktrace"])
    assert len(spans.named("send flaky")) == 1


def test_the_span_is_current_in_the_task(app: switchgear.App, spans: Spans) -> None:
    shop(app)
    instrument(app, tracer_provider=spans.provider)
    trace_id, trace = str(app.tasks["context"].submit().result()).split()
    assert trace_id == f"{spans.one('process context').context.trace_id:032x}"
    send = spans.one("send context").context
    assert trace == f"00-{send.trace_id:032x}-{send.span_id:016x}-01"


def test_many_jobs_have_one_send_span(app: switchgear.App, spans: Spans) -> None:
    shop(app)
    instrument(app, tracer_provider=spans.provider)
    double = app.tasks["double"]
    assert list(double.submit_many([1, 2, 3]).results()) == [2, 4, 6]
    assert (spans.one("send double").attributes or {})["messaging.batch.message_count"] == 3
    assert {span.links[0].context.span_id for span in spans.named("process double")} == {
        spans.one("send double").context.span_id
    }
    spans.exporter.clear()
    assert list(double.map([4, 5])) == [8, 10]
    assert list(switchgear.group(double.s(6), double.s(7)).submit().results()) == [12, 14]
    assert len(spans.named("send double")) == 2
    assert len(spans.named("process double")) == 4
    assert all(span.links for span in spans.named("process double"))


def test_a_trace_of_ones_own_is_carried_without_a_span(app: switchgear.App, spans: Spans) -> None:
    shop(app)
    instrument(app, tracer_provider=spans.provider)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    context = app.tasks["context"]
    assert str(context.options(trace=trace).submit().result()).endswith(trace)
    assert not spans.named("send context")
    assert f"{spans.one('process context').links[0].context.span_id:016x}" == "b7ad6b7169203331"
    with pytest.raises(ValueError, match="trace is a traceparent"):
        context.options(trace="nonsense")


def test_jobs_that_nobody_traces_have_spans_without_links(spans: Spans) -> None:
    app = switchgear.App("gearman://127.0.0.1:1")
    shop(app)
    with in_memory(app, "step") as server:
        app.tasks["double"].submit(1)
        instrument(app, tracer_provider=spans.provider)
        server.run_all()
    assert not spans.one("process double").links


def test_without_the_extra_nothing_is_imported() -> None:
    imports = "import sys, switchgear, switchgear.app.app, switchgear.app.worker.worker"
    code = f"{imports}; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- a worker of its own, and OTLP ---


class Collector:
    """An OTLP receiver over HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, str]] = []  # service, name, trace id, linked trace id
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                collector.take(request)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    linked = span.links[0].trace_id.hex() if span.links else ""
                    self.spans.append((names.get("service.name", ""), span.name, span.trace_id.hex(), linked))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


WORKER = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import switchgear
from switchgear.contrib.otel import instrument

provider = TracerProvider(resource=Resource.create({"service.name": "worker"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(COLLECTOR)))
app = switchgear.App(SERVER)
instrument(app, tracer_provider=provider)


@app.task(name="in_thread")
def in_thread():
    return 1


@app.task(name="in_process", run_in="process")
def in_process():
    return 2
"""


@pytest.mark.system
def test_spans_of_submitter_worker_and_child_process_arrive_over_otlp(tmp_path: Path) -> None:
    collector = Collector()
    try:
        with running_switchgear() as server:
            url = url_of(server)
            text = WORKER.replace("COLLECTOR", repr(collector.url)).replace("SERVER", repr(url))
            (tmp_path / "traced.py").write_text(text)
            process = subprocess.Popen(
                [sys.executable, "-m", "switchgear", "worker", "traced:app", "--quiet"], cwd=tmp_path
            )
            try:
                provider = TracerProvider()
                provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(collector.url)))
                with switchgear.App(url) as app:
                    instrument(app, tracer_provider=provider)

                    @app.task(name="in_thread")
                    def in_thread() -> int: ...  # type: ignore[empty-body]

                    @app.task(name="in_process")
                    def in_process() -> int: ...  # type: ignore[empty-body]

                    assert in_thread.submit().result(timeout=2 * DEADLINE_SECONDS) == 1
                    job = in_process.submit()
                    assert job.result(timeout=2 * DEADLINE_SECONDS) == 2
                    trace = app.job(job.handle).status().details["trace"]
                eventually(lambda: len(collector.spans) >= 4, "all spans have arrived")
            finally:
                process.terminate()
                process.wait()
    finally:
        collector.close()
    by_name = {name: (trace_id, linked, service) for service, name, trace_id, linked in collector.spans}
    for task in ("in_thread", "in_process"):
        sent, processed = by_name[f"send {task}"], by_name[f"process {task}"]
        assert processed[1] == sent[0]
        assert processed[2] == "worker"
    assert trace.split("-")[1] == by_name["send in_process"][0]
