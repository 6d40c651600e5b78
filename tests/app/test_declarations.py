"""What an app has declared and declares no more: removed or reported when a worker starts, and nothing of others."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from switchgear import App
from switchgear.app.app import App as AppClass
from switchgear.errors import ConfigError
from tests.app.harness import url_of, working
from tests.support.servers import Server

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def without_other_apps() -> Iterator[None]:
    """Apps of earlier tests that are garbage do not count."""
    gc.collect()
    yield
    gc.collect()


def shop(server: Server, name: str | None, *, full: bool, undeclared: str | None = None) -> AppClass:
    """A program before and after a schedule and a rate were taken out of its code."""
    app = App(url_of(server), name=name, undeclared=undeclared)  # type: ignore[arg-type]

    @app.task(name="mail", rate="5/s" if full else None)
    def mail() -> None: ...

    app.every(3600, name="always")(mail)
    if full:
        app.every(3600, name="nightly")(mail)
    return app


def state_of(app: AppClass) -> tuple[list[str], object]:
    rate = next(each["policy"] for each in app.control("functions") if each["name"] == "mail")
    return sorted(schedule.name for schedule in app.schedules.list()), rate and rate["rate"]


def deploy(app: AppClass) -> tuple[list[str], object]:
    with app, working(app):
        return state_of(app)


def test_what_is_gone_from_the_code_is_removed(live_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert deploy(shop(live_server, "shop", full=True)) == (["always", "nightly"], [5, 1.0])
    gc.collect()
    assert deploy(shop(live_server, "shop", full=False)) == (["always"], None)
    (text,) = [record.message for record in caplog.records if "no more" in record.message]
    assert text == (
        "removed from the server, because the app declares them no more: the schedule nightly, the limits of mail"
    )


def test_what_others_have_declared_stays(live_server: Server) -> None:
    deploy(shop(live_server, "another", full=True))
    with shop(live_server, "shop", full=False) as app:
        app.control("schedule", name="by hand", function="mail", every_seconds=60)
        app.limit("mail", concurrency=7)
        gc.collect()
        with working(app):
            names, _ = state_of(app)
        assert names == ["always", "by hand", "nightly"]
        (function,) = [each for each in app.control("functions") if each["name"] == "mail"]
        assert (function["policy"]["concurrency"], function["policy"].get("owner")) == (7, None)


def test_an_app_without_a_name_only_reports(live_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with shop(live_server, None, full=True) as app:
        assert app.name == __name__
        app.declare()
    del app
    gc.collect()
    with shop(live_server, None, full=False) as app, caplog.at_level(logging.WARNING):
        app.declare()
        names, rate = state_of(app)
    assert ("nightly" in names, rate) == (True, [5, 1.0])
    assert "still on the server, although the app declares them no more" in caplog.text


def test_two_apps_of_one_name_remove_nothing_of_each_other(live_server: Server) -> None:
    one, other = shop(live_server, "twice", full=True), shop(live_server, "twice", full=False)
    with one, other:
        one.declare()
        other.declare()
        assert "nightly" in state_of(one)[0]


def test_keeping_is_a_choice(live_server: Server) -> None:
    deploy(shop(live_server, "keeper", full=True))
    gc.collect()
    app = shop(live_server, "keeper", full=False, undeclared="keep")
    assert "nightly" in deploy(app)[0]
    with pytest.raises(ConfigError, match="undeclared is one of remove, report, keep, not 'forget'"):
        App(undeclared="forget")  # type: ignore[arg-type]
