"""Assertions about submissions, and jobs that are run again here."""

from __future__ import annotations

import pytest

from switchgear import App, current_job
from switchgear.errors import JobUnknown
from switchgear.testing import in_memory, replay


@pytest.fixture
def app() -> App:
    return App("gearman://127.0.0.1:1")


def test_what_was_submitted(app: App) -> None:
    @app.task(name="mail")
    def mail(to: str, subject: str = "") -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    with in_memory(app, "step") as server:
        mail.submit("ann", "hello")
        mail.submit("bob")
        (found,) = server.assert_submitted(mail, with_={"to": "ann"})
        assert found.arguments == {"to": "ann", "subject": "hello"}
        assert len(server.assert_submitted("mail", times=2)) == 2
        server.assert_not_submitted(other)
        server.assert_not_submitted(mail, with_={"to": "carol"})
        with pytest.raises(AssertionError) as caught:
            server.assert_submitted(mail, with_={"to": "carol"})
        assert str(caught.value) == (
            "mail was not submitted with {'to': 'carol'}; its submissions:\n"
            "  {'to': 'ann', 'subject': 'hello'}\n  {'to': 'bob'}"
        )
        with pytest.raises(AssertionError, match="mail was not submitted 1 times, but 2"):
            server.assert_submitted(mail, times=1)
        with pytest.raises(AssertionError, match="it was not submitted at all"):
            server.assert_submitted(other)


def test_a_job_is_run_again_here(app: App) -> None:
    calls: list[str] = []

    @app.task(name="double")
    def double(number: int) -> int:
        calls.append(f"{current_job().handle} attempt {current_job().attempt}")
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    @app.task(name="later")
    async def later(number: int) -> int:
        return number + 1

    with in_memory(app) as server:
        failed, done = double.submit(-1), double.submit(4)
        server.run_until_idle()
        calls.clear()
        with pytest.raises(ValueError, match="negative"):
            replay(app, failed.handle)
        assert replay(app, done.handle) == 8
        assert calls == [f"{failed.handle} attempt 1", f"{done.handle} attempt 1"]
        after = later.submit(done)  # type: ignore[arg-type]
        assert replay(app, after.handle) == 9
        assert replay(app, done.handle, function=lambda number: f"was given {number}") == "was given 4"
        assert failed.status().state == "failed", "the job itself is as it was"
        with pytest.raises(JobUnknown):
            replay(app, "H:memory:999")
        del app._tasks["double"]
        with pytest.raises(LookupError, match="a job of double, and the app has no such task"):
            replay(app, done.handle)
