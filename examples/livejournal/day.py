"""One day of the site: what happens, and the jobs that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from examples.livejournal import orders
from examples.livejournal.letters import comment_letter, welcome_letter
from examples.livejournal.orders import Order
from examples.livejournal.outside.web import BROKEN_FEED, FEEDS
from examples.livejournal.painting import paint_gallery
from examples.livejournal.site import Site
from examples.livejournal.world import World

__all__ = ["BIRTHDAY_LETTERS", "BROKEN_JOURNAL", "LETTERS", "QUICK", "USUAL", "Scale", "orders_of_a_day"]

LETTERS = 2
BIRTHDAY_LETTERS = 2
BROKEN_JOURNAL = 23  # whose feed cannot be read


@dataclass(frozen=True)
class Scale:
    """How much there is to do."""

    pictures: int
    picture_size: tuple[int, int]


QUICK = Scale(4, (900, 600))
USUAL = Scale(24, (3000, 2000))


def orders_of_a_day(world: World, site: Site, scale: Scale, now: datetime) -> Iterator[Order]:
    """All jobs of the day.  What is to be done by those without arguments is noted in the site's database."""
    yield from _pictures_and_letters(world, scale)
    yield from _crons()
    for order in _errands(world, site, now):
        site.note_errand(order.name, order.dupkey)
        yield order
    yield orders.captcha(now)
    yield orders.restart_web_nodes()


def _pictures_and_letters(world: World, scale: Scale) -> Iterator[Order]:
    """Anna, user 7, has new pictures, and is so impatient that she asks for them twice."""
    gallery = paint_gallery(world.place / "gallery/7-3", scale.pictures, scale.picture_size)
    names = [str(file.relative_to(world.place)) for file in gallery]
    yield orders.resize(7, 3, 640, 480, names)
    yield orders.resize(7, 3, 640, 480, names)
    for upicid, picture in enumerate(names[:2], 11):
        yield orders.thumbgen(7, upicid, 100, 100, picture)
    userpic = paint_gallery(world.place / "userpics/10", 1, (300, 200))[0]
    yield orders.mail(welcome_letter("dora", userpic))
    yield orders.mail(comment_letter("anna", "Boris", "Wunderschön, the third one!"))


def _crons() -> Iterator[Order]:
    yield orders.cron("pay_updateaccounts", "--grace-days", "3")
    yield orders.cron("genstats", "users", "friends")


def _errands(world: World, site: Site, now: datetime) -> Iterator[Order]:
    """Two people make Anna their friend in one moment, and two of her entries are two reasons for a ping."""
    yield orders.friends_changed(7)
    yield orders.friends_changed(7)
    yield orders.backup(9)
    yield orders.weblogscom(7)
    yield orders.weblogscom(7)
    for uid, feed in enumerate([*FEEDS, BROKEN_FEED], BROKEN_JOURNAL - len(FEEDS)):
        site.change("INSERT INTO feeds (uid, url) VALUES (?, ?)", uid, f"{world.web_url}/feeds/{feed}.xml")
        yield orders.rss(uid)
    yield orders.birthdays(now.date())
