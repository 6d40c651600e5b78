"""`add_sessions`: gives tasks SQLAlchemy sessions, one for each job, committed if the task returns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.orm import Session, sessionmaker

from switchgear.app.app import App

__all__ = ["add_sessions"]


def add_sessions(app: App, sessions: sessionmaker[Session]) -> None:
    """Let tasks take a session: `def bill(order: int, session: Session = INJECTED)`.

    Each attempt has a session of its own.  It is committed if the task returns, and rolled back if it raises; an error
    of the commit fails the attempt.
    """

    @app.resource(scope="job")
    def session() -> Iterator[Session]:
        with sessions.begin() as opened:
            yield opened
