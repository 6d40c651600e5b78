"""An app of several servers: whose job a handle means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from switchgear import App, JobGroup, JobUnknown
from switchgear.errors import ConfigError, ExtensionRequired, ServerUnreachable
from tests.app.harness import hand_worker, url_of
from tests.support.proxy import cuttable
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server, Server]]:
    """Two whose handles begin alike, as those of one host do, and one whose handles are its own."""
    with ExitStack() as stack:
        names = ("H:alike", "H:alike", "H:other")
        first, second, other = (
            stack.enter_context(running_switchgear("--set", f"gearman.handle_prefix={name}")) for name in names
        )
        yield first, second, other


def done_job(server: Server, result: bytes) -> str:
    """The handle of a job that is done."""
    with App(url_of(server)) as app:
        task = app.task(name="add")(lambda: None)
        job = task.submit()
        with hand_worker(server, task) as worker:
            worker.complete(worker.grab()[0], result)
        job.result(WAIT)
        return job.handle


def test_servers_with_the_same_handles_are_refused(servers: tuple[Server, Server, Server]) -> None:
    first, second, _ = servers
    handle = done_job(first, b"1")
    assert done_job(second, b"2") == handle
    with App([url_of(first), url_of(second)]) as app:
        asked: list[Callable[[], object]] = [
            lambda: app.job(handle).result(WAIT),
            lambda: app.job(handle).status(),
            lambda: app.task(name="add")(lambda: None).options(after=handle).submit(),
            lambda: JobGroup[int](app, None, [handle]).counts(),
        ]
        for ask in asked:
            with pytest.raises(ConfigError) as caught:
                ask()
            for words in (url_of(first), url_of(second), "H:alike:", "gearman.handle_prefix"):
                assert words in str(caught.value)


def test_a_server_does_not_take_over_from_one_with_the_same_handles(servers: tuple[Server, Server, Server]) -> None:
    first, second, _ = servers
    with cuttable(first.port) as network, App([network.url, url_of(second)]) as app:
        app.server()
        network.go_away()
        assert "gearman.handle_prefix" in eventually(lambda: clash_of(app), "the second is refused")


def clash_of(app: App) -> str:
    """Why the app refuses its servers; until it has noticed the cut, it does not."""
    try:
        app.server()
    except ServerUnreachable:
        pass
    except ConfigError as error:
        return str(error)
    return ""


def test_a_job_is_asked_of_the_server_whose_handle_it_has(servers: tuple[Server, Server, Server]) -> None:
    first, _, other = servers
    handles = [done_job(first, b"1"), done_job(other, b"2")]
    with App([url_of(first), url_of(other)]) as app:
        assert [app.job(handle).result(WAIT) for handle in handles] == [1, 2]
        assert app.job(handles[1]).status().state == "done"
        with pytest.raises(JobUnknown, match="no server of this app gives handles such as H:nowhere:1"):
            app.job("H:nowhere:1").status()


def test_a_job_goes_where_those_are_that_it_waits_for(servers: tuple[Server, Server, Server]) -> None:
    first, _, other = servers
    handle = done_job(other, b"2")
    with App([url_of(first), url_of(other)]) as app:
        task = app.task(name="follow")(lambda: None)
        assert task.options(after=handle).submit().handle.startswith("H:other:")
        assert task.submit().handle.startswith("H:alike:")
        with pytest.raises(JobUnknown, match="H:nowhere:1"):
            task.options(after="H:nowhere:1").submit()


def test_an_app_of_one_server_does_not_ask_for_its_prefix(servers: tuple[Server, Server, Server]) -> None:
    with App(url_of(servers[2])) as app:
        assert app.control("server")["handle_prefix"] == "H:other:"
        connection = app.transport._io_thread._connections[0]  # type: ignore[attr-defined]
        assert connection.prefix is None


def test_plain_servers_say_what_they_cannot_do(plain_server: Server) -> None:
    with App([url_of(plain_server), url_of(plain_server)]) as app, pytest.raises(ExtensionRequired):
        app.job("H:any:1").result(WAIT)
