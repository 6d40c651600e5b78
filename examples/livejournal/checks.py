"""What should have come of the day, held against what did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from examples.livejournal.application import Job
from examples.livejournal.day import BIRTHDAY_LETTERS, BROKEN_JOURNAL, LETTERS
from examples.livejournal.letters import BIRTHDAY_SUBJECT
from examples.livejournal.orders import Order
from examples.livejournal.outside.smtp import Letter
from examples.livejournal.outside.web import FEEDS
from examples.livejournal.site import Site
from examples.livejournal.tasks.pictures import CAPTCHA_POOL
from switchgear.joblog import JobLog

__all__ = ["Evidence", "Finding", "findings"]


class Finding(NamedTuple):
    """Something that should be so."""

    claim: str
    is_so: bool


@dataclass(frozen=True)
class Evidence:
    """All that is left of the day."""

    place: Path
    jobs: list[Job]
    log: JobLog
    site: Site
    letters: list[Letter]
    pings: list[tuple[str, str]]
    node_starts: dict[str, int]


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Everything that should be so, and whether it is."""
    yield from _outcomes(evidence)
    yield from _duplicates(evidence)
    yield from _log(evidence)
    yield from _letters(evidence)
    yield from _pictures(evidence)
    yield from _site(evidence)


def _outcomes(evidence: Evidence) -> Iterator[Finding]:
    failed = [job.order.label for job in evidence.jobs if job.state == "failed"]
    yield Finding("only the broken feed has failed", failed == [f"rss {BROKEN_JOURNAL}"])
    others = {job.state for job in evidence.jobs if job.state != "failed"}
    yield Finding("all other jobs are done, or were duplicates", others == {"done", "duplicate"})


def _duplicates(evidence: Evidence) -> Iterator[Finding]:
    twice = list[Order]()
    seen = set[Order]()
    for job in evidence.jobs:
        if job.order.dupkey and job.order in seen:
            twice.append(job.order)
        seen.add(job.order)
    for order in twice:
        runs = evidence.log.ran(function=order.name, key=order.dupkey)
        yield Finding(f"{order.label} was asked for twice and ran once", len(runs) == 1)


def _log(evidence: Evidence) -> Iterator[Finding]:
    log = evidence.log
    failures = log.failures()
    yield Finding(
        "the log has the one failure, with its error", len(failures) == 1 and "ParseError" in failures[0].error
    )
    yield Finding("the log has nothing that started and never ended", not log.unfinished())
    resized = log.ran(function="resize")
    tried = [(run.state, run.attempts) for run in resized]
    yield Finding("resize was done by a second worker after the first was killed", tried == [("done", 2)])
    counted = {run.key: run.result for run in log.ran(function="genstats-count")}
    yield Finding("the parts of genstats are in the log", counted == {"users": "4 users", "friends": "6 friends"})


def _letters(evidence: Evidence) -> Iterator[Finding]:
    letters = [message_from_bytes(letter.content, policy=default) for letter in evidence.letters]
    parts = {part.get_content_type() for letter in letters for part in letter.walk()}
    yield Finding(f"{LETTERS + BIRTHDAY_LETTERS} letters have arrived", len(letters) == LETTERS + BIRTHDAY_LETTERS)
    yield Finding("they have text, HTML and a picture", parts >= {"text/plain", "text/html", "image/jpeg"})
    congratulated = sorted(letter["To"] for letter in letters if letter["Subject"] == BIRTHDAY_SUBJECT)
    expected = ["Anna <anna@users.example>", "Chandra <chandra@users.example>"]
    yield Finding("those who have their birthday are congratulated", congratulated == expected)


def _pictures(evidence: Evidence) -> Iterator[Finding]:
    originals = sorted(file.name for file in (evidence.place / "gallery/7-3").iterdir())
    resized = _sizes(evidence.place / "resized/7-3/640x480")
    yield Finding("all pictures of the gallery fit into 640x480", resized == dict.fromkeys(originals, (640, 427)))
    thumbs = [
        size for folder in ("7-11", "7-12") for size in _sizes(evidence.place / f"thumbs/{folder}/100x100").values()
    ]
    yield Finding("both thumbnails are 100x100", thumbs == [(100, 100)] * 2)
    ((answers,),) = evidence.site.ask("SELECT count(*) FROM captchas")
    drawn = len(_sizes(evidence.place / "captchas"))
    yield Finding(f"{CAPTCHA_POOL} captchas are ready", drawn == answers == CAPTCHA_POOL)


def _sizes(folder: Path) -> dict[str, tuple[int, int]]:
    sizes = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        with Image.open(file) as image:
            sizes[file.name] = image.size
    return sizes


def _site(evidence: Evidence) -> Iterator[Finding]:
    site = evidence.site
    accounts = dict(site.ask("SELECT name, account FROM users"))
    expected = {"anna": "paid", "boris": "paid", "chandra": "free", "dora": "free"}
    yield Finding("whoever has not paid for too long has a free account", accounts == expected)
    titles = {title for (title,) in site.ask("SELECT title FROM feed_items")}
    yield Finding("the feeds' items are there", titles == {item for _, items in FEEDS.values() for item in items})
    yield Finding("Anna's friends are counted", _saved(evidence.place / "friends/7.json", "friend_of") == [8, 9, 10])
    yield Finding("Chandra's data are saved", _saved(evidence.place / "backup/9.json", "name") == "chandra")
    yield Finding("the directory was pinged once", [name for name, _ in evidence.pings] == ["anna"])
    yield Finding("both web nodes were restarted", evidence.node_starts == {"web1": 2, "web2": 2})
    left = site.ask("SELECT kind, subject FROM errands")
    yield Finding("nothing is left to do but the broken feed", left == [("rss", str(BROKEN_JOURNAL))])


def _saved(file: Path, name: str) -> object:
    """A field of an object in a file, or None if the file is not there."""
    return json.loads(file.read_text()).get(name) if file.is_file() else None
