"""The site's database: a SQLite file that the application and all workers use."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

__all__ = ["Errand", "Site", "WebNode"]

# A worker that has not done its errand by then is gone, and another may do it.
ERRAND_SECONDS = 60.0
BUSY_SECONDS = 30.0


class Errand(NamedTuple):
    """Something to be done, taken by one worker for a while."""

    id: int
    subject: str


class WebNode(NamedTuple):
    """A web server of the site."""

    name: str
    url: str
    pid: int


class Site:
    """An open database.  Every method is a transaction of its own."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)

    @classmethod
    def create(cls, file: Path, today: date) -> Self:
        """A new site, with a few users."""
        site = cls(file)
        site._db.executescript(Path(__file__).with_name("site.sql").read_text())
        site.change_many("INSERT INTO users VALUES (?, ?, ?, ?, ?)", _users(today))
        site.change_many("INSERT INTO friends VALUES (?, ?)", [(7, 8), (7, 9), (8, 7), (9, 7), (9, 8), (10, 7)])
        return site

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- anything ---

    def ask(self, sql: str, *values: object) -> list[Any]:
        """All rows of an answer."""
        return self._db.execute(sql, values).fetchall()

    def change(self, sql: str, *values: object) -> int:
        """Change something; returns how many rows that were."""
        return self._db.execute(sql, values).rowcount

    def change_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> int:
        """Change something for each of these, or for none; returns how many rows that were."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            count = self._db.executemany(sql, rows).rowcount
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return count

    # --- errands ---

    def note_errand(self, kind: str, subject: str) -> None:
        """Something is to be done; once, however often that is said before it is."""
        self.change("INSERT OR IGNORE INTO errands (kind, subject) VALUES (?, ?)", kind, subject)

    def take_errand(self, kind: str) -> Errand | None:
        """The oldest that nobody is about to do, if there is one."""
        now = time.time()
        rows = self.ask(
            "UPDATE errands SET taken_until = ? WHERE id ="
            " (SELECT id FROM errands WHERE kind = ? AND taken_until < ? ORDER BY id LIMIT 1) RETURNING id, subject",
            now + ERRAND_SECONDS,
            kind,
            now,
        )
        return Errand(*rows[0]) if rows else None

    def errand_done(self, errand: Errand) -> None:
        """It need not be done any more."""
        self.change("DELETE FROM errands WHERE id = ?", errand.id)

    # --- web nodes ---

    def note_web_node(self, node: WebNode) -> None:
        """A web node was started."""
        self.change("INSERT OR REPLACE INTO web_nodes VALUES (?, ?, ?)", *node)

    def web_nodes(self) -> list[WebNode]:
        """Those that run."""
        return [WebNode(*row) for row in self.ask("SELECT name, url, pid FROM web_nodes ORDER BY name")]


def _users(today: date) -> list[tuple[object, ...]]:
    """Two have their birthday today; of three who have paid, it was too long ago for one."""
    birthday = today.strftime("%m-%d")
    other_day = (today + timedelta(days=100)).strftime("%m-%d")
    soon, lately, long_ago = (str(today + timedelta(days=days)) for days in (200, -1, -30))
    return [
        (7, "anna", birthday, "paid", soon),
        (8, "boris", other_day, "paid", lately),
        (9, "chandra", birthday, "paid", long_ago),
        (10, "dora", other_day, "free", ""),
    ]
