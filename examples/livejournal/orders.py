"""The site's jobs as they are created: the name, the duplicate key, the type and the arguments of each.

Arguments are JSON.  Some jobs have none: what is to be done is noted in the site's database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from email.message import EmailMessage
from email.policy import SMTP

from switchgear.client.draft import JobType

__all__ = [
    "Order",
    "backup",
    "birthdays",
    "captcha",
    "cron",
    "friends_changed",
    "mail",
    "resize",
    "restart_web_nodes",
    "rss",
    "thumbgen",
    "weblogscom",
]

TYPE_WORDS = {
    JobType.SYNC_WAIT: "sync+wait",
    JobType.ASYNC_HANDLE: "async+handle",
    JobType.ASYNC_THROW_AWAY: "throw-away",
}


@dataclass(frozen=True)
class Order:
    """A job to be created."""

    name: str
    dupkey: str = ""  # empty: any number of them may wait and run
    job_type: JobType = JobType.ASYNC_HANDLE
    args: bytes = b""

    @property
    def label(self) -> str:
        return f"{self.name} {self.dupkey}".strip()

    @property
    def type_words(self) -> str:
        return TYPE_WORDS[self.job_type]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def mail(message: EmailMessage) -> Order:
    """Deliver a message."""
    recipients = [address.addr_spec for address in message["To"].addresses]
    content = message.as_bytes(policy=SMTP.clone(cte_type="7bit")).decode("ascii")
    envelope = {"from": message["From"].addresses[0].addr_spec, "to": recipients, "message": content}
    return Order("mail", args=_json(envelope))


def resize(uid: int, gallid: int, width: int, height: int, images: Sequence[str]) -> Order:
    """Fit the images of a gallery into a box."""
    args = {"images": list(images), "width": width, "height": height, "folder": f"resized/{uid}-{gallid}"}
    return Order("resize", f"{uid}-{gallid}-{width}-{height}", args=_json(args))


def thumbgen(uid: int, upicid: int, width: int, height: int, image: str) -> Order:
    """A small version of a user's picture."""
    args = {"images": [image], "width": width, "height": height, "folder": f"thumbs/{uid}-{upicid}"}
    return Order("thumbgen", f"{uid}-{upicid}-{width}-{height}", args=_json(args))


def cron(name: str, *argv: str) -> Order:
    """A script that is run at times.  (It gets a handle, since an asynchronous job without one is a throw-away.)"""
    return Order(name, args=_json(argv))


def friends_changed(uid: int) -> Order:
    """Count a user's friends again."""
    return Order("dirty", f"friends-{uid}")


def backup(uid: int) -> Order:
    """Write a user's data to where they are safe."""
    return Order("dirty", f"backup-{uid}")


def weblogscom(uid: int) -> Order:
    """Tell a directory of weblogs that there is news in this one."""
    return Order("weblogscom", str(uid), JobType.ASYNC_THROW_AWAY)


def rss(uid: int) -> Order:
    """Fetch the feed that fills this journal."""
    return Order("rss", str(uid))


def captcha(now: datetime) -> Order:
    """Draw new captchas, once an hour at most."""
    return Order("captcha", now.strftime("%d-%H"), JobType.ASYNC_THROW_AWAY)


def birthdays(day: date) -> Order:
    """Congratulate those whose birthday it is."""
    return Order("bday", day.isoformat())


def restart_web_nodes() -> Order:
    """Restart all web nodes.  An administrator waits for it, and a second who is as impatient waits for the same."""
    return Order("restart_web_nodes", "all", JobType.SYNC_WAIT)
