"""Ready-made middleware, with the real libraries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear import INJECTED, App
from switchgear.errors import TaskFailed
from switchgear.testing import in_memory

sentry_sdk = pytest.importorskip("sentry_sdk")
sqlalchemy = pytest.importorskip("sqlalchemy")
structlog = pytest.importorskip("structlog")

from sqlalchemy.orm import Session, sessionmaker  # noqa: E402


@pytest.fixture
def app() -> App:
    return App("gearman://127.0.0.1:1")


# --- logging ---


def test_lines_of_a_task_name_its_job(app: App) -> None:
    from switchgear.contrib.logging_context import JobLogFilter, LoggingContext

    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Lines()
    handler.setFormatter(logging.Formatter("%(job)s|%(task)s|%(attempt)s|%(message)s"))
    handler.addFilter(JobLogFilter())
    logger = logging.getLogger("tests.shop")
    logger.addHandler(handler)
    app.add_middleware(LoggingContext())

    @app.task(name="bill")
    def bill() -> dict[str, Any]:
        logger.warning("paid")
        return dict(structlog.contextvars.get_contextvars())

    @app.task(name="mail")
    async def mail() -> None:
        logger.warning("sent")

    try:
        with in_memory(app):
            assert bill.submit().result() == {"job": "H:memory:1", "task": "bill", "attempt": 1}
            mail.submit().result()
            logger.warning("outside")
    finally:
        logger.removeHandler(handler)
    assert lines == ["H:memory:1|bill|1|paid", "H:memory:2|mail|1|sent", "||0|outside"]
    assert structlog.contextvars.get_contextvars() == {}


def test_the_handlers_of_the_root_logger_get_the_filter(app: App) -> None:
    from switchgear.contrib.logging_context import JobLogFilter, LoggingContext

    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    app.add_middleware(LoggingContext(), LoggingContext())
    try:
        with in_memory(app):
            assert [type(each) for each in handler.filters] == [JobLogFilter]
    finally:
        logging.getLogger().removeHandler(handler)


# --- Sentry ---


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """What would be sent to Sentry."""
    found: list[dict[str, Any]] = []

    class Kept(sentry_sdk.transport.Transport):  # type: ignore[misc, name-defined]
        def capture_envelope(self, envelope: Any) -> None:
            event = envelope.get_event()
            if event is not None:
                found.append(event)

    sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=Kept, default_integrations=False)
    yield found
    sentry_sdk.init()


def test_failed_jobs_are_reported_once(app: App, events: list[dict[str, Any]]) -> None:
    from switchgear.contrib.sentry import SentryMiddleware

    app.add_middleware(SentryMiddleware())

    @app.task(name="bill", retries=1, backoff="none")
    def bill(order: int) -> None:
        sentry_sdk.set_tag("order", order)
        raise LookupError(f"order {order}")

    with in_memory(app) as server:
        job = bill.submit(17)
        server.run_until_idle()
        with pytest.raises(TaskFailed):
            job.result()
    (event,) = events
    assert event["exception"]["values"][0]["value"] == "order 17"
    assert (event["tags"]["switchgear.task"], event["contexts"]["job"]["handle"]) == ("bill", job.handle)
    assert event["contexts"]["job"]["attempt"] == 2


# --- SQLAlchemy ---


def test_a_session_for_each_job(app: App, tmp_path: Path) -> None:
    from switchgear.contrib.sqlalchemy import add_sessions

    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db", poolclass=sqlalchemy.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER)"))
    add_sessions(app, sessionmaker(engine))

    @app.task
    def order(number: int, session: Session = INJECTED) -> None:
        session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:number)"), {"number": number})
        if number < 0:
            raise ValueError("negative")

    with in_memory(app):
        order.submit(1).result()
        with pytest.raises(TaskFailed, match="negative"):
            order.submit(-1).result()
        order.submit(2).result()
    with engine.begin() as connection:
        assert list(connection.execute(sqlalchemy.text("SELECT number FROM orders"))) == [(1,), (2,)]


def test_an_asynchronous_session_for_each_job(app: App, tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

    from switchgear.contrib.sqlalchemy_asyncio import add_async_sessions

    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db", poolclass=sqlalchemy.pool.NullPool)
    add_async_sessions(app, async_sessionmaker(engine))

    async def order(number: int, session: object = INJECTED) -> int:
        assert isinstance(session, AsyncSession)
        await session.execute(sqlalchemy.text("CREATE TABLE IF NOT EXISTS orders (number INTEGER)"))
        await session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:number)"), {"number": number})
        if number < 0:
            raise ValueError("negative")
        return len((await session.execute(sqlalchemy.text("SELECT number FROM orders"))).all())

    order.__annotations__["session"] = AsyncSession
    task = app.task(name="order")(order)
    with in_memory(app):
        assert task.submit(1).result() == 1
        with pytest.raises(TaskFailed, match="negative"):
            task.submit(-1).result()
        assert task.submit(2).result() == 2
