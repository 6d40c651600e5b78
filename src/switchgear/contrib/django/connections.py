"""`DjangoConnections`: closes database connections of Django that are unusable or too old, around each job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from switchgear.app.current_job import CurrentJob
from switchgear.app.middleware import Middleware

__all__ = ["DjangoConnections"]


class DjangoConnections(Middleware):
    """For apps whose tasks use Django's models: what Django does at the beginning and the end of each request."""

    @contextmanager
    def around_run(self, job: CurrentJob) -> Iterator[None]:
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()

    def around_run_async(self, job: CurrentJob) -> AbstractAsyncContextManager[object]:
        return _closing_connections()


@asynccontextmanager
async def _closing_connections() -> AsyncIterator[None]:
    # In the thread in which Django runs the queries of coroutine functions.
    close = sync_to_async(close_old_connections)
    await close()
    try:
        yield
    finally:
        await close()
