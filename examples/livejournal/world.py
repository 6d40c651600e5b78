"""Where everything is: what the application tells its workers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.livejournal.site import Site
from switchgear.joblog import JobLog

__all__ = ["ROOT", "World", "joblog_url"]

ROOT = Path(__file__).parents[2]  # from where `python -m examples.livejournal` works
_FILE = "world.json"


@dataclass(frozen=True)
class World:
    """The folder in which all is kept, and the addresses of everybody."""

    place: Path
    server_url: str  # of the job server
    smtp_port: int
    web_url: str  # of other people's sites

    def save(self) -> None:
        """Write it down for the workers."""
        (self.place / _FILE).write_text(json.dumps({**asdict(self), "place": str(self.place)}))

    @classmethod
    def load(cls, place: Path) -> World:
        """As it was written down."""
        fields = json.loads((place / _FILE).read_text())
        return cls(place, fields["server_url"], fields["smtp_port"], fields["web_url"])

    def site(self) -> Site:
        """The site's database, to be closed."""
        return Site(self.place / "site.db")

    def job_log(self) -> JobLog:
        """The log that the server writes, for workers to add to; to be closed."""
        return JobLog.open(joblog_url(self.place))


def joblog_url(place: Path) -> str:
    """Where the job log of an example in this folder is."""
    return f"sqlite:{place / 'joblog.db'}"
