"""mail and bday: letters to users."""

from __future__ import annotations

import json
import smtplib

from examples.livejournal import orders
from examples.livejournal.letters import birthday_letter
from examples.livejournal.tasks.base import Task
from examples.livejournal.world import World
from switchgear.client.draft import DraftClient

__all__ = ["bday", "mail"]

SMTP_SECONDS = 10.0


def mail(world: World, task: Task) -> bytes:
    """Hand a message to the mail server."""
    envelope = json.loads(task.args)
    with smtplib.SMTP("127.0.0.1", world.smtp_port, local_hostname="worker.example", timeout=SMTP_SECONDS) as server:
        server.sendmail(envelope["from"], envelope["to"], envelope["message"].encode("ascii"))
    return f"to {', '.join(envelope['to'])}".encode()


def bday(world: World, task: Task) -> bytes:
    """Write to all who have their birthday: a job that creates a job for each letter."""
    with world.site() as site, DraftClient(world.server_url) as client:
        errand = site.take_errand("bday")
        if errand is None:
            return b"nobody is left to congratulate"
        month_and_day = errand.subject[len("yyyy-") :]
        names = [name for (name,) in site.ask("SELECT name FROM users WHERE birthday = ?", month_and_day)]
        for count, name in enumerate(names, 1):
            order = orders.mail(birthday_letter(name))
            client.submit(order.name, order.args, dupkey=order.dupkey, job_type=order.job_type)
            task.progress(count, len(names))
        site.errand_done(errand)
    return f"letters to {', '.join(names)}".encode()
