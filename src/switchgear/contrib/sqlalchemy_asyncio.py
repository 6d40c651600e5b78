"""`add_async_sessions`: gives coroutine functions asynchronous SQLAlchemy sessions, one for each job."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from switchgear.app.app import App

__all__ = ["add_async_sessions"]


def add_async_sessions(app: App, sessions: async_sessionmaker[AsyncSession]) -> None:
    """Let tasks take a session: `async def bill(order: int, session: AsyncSession = INJECTED)`.

    Each attempt has a session of its own.  It is committed if the task returns, and rolled back if it raises.
    """

    @app.resource(scope="job")
    async def session() -> AsyncIterator[AsyncSession]:
        async with sessions.begin() as opened:
            yield opened
