"""rss and weblogscom: news from other sites, and news for them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any
from xmlrpc.client import ServerProxy

from examples.livejournal.tasks.base import Task, fetch
from examples.livejournal.world import World

__all__ = ["rss", "weblogscom"]


def rss(world: World, task: Task) -> bytes:
    """Fetch a feed, and note what is new in it.  A feed that cannot be read raises, and stays for another time."""
    with world.site() as site:
        errand = site.take_errand("rss")
        if errand is None:
            return b"no feed is due"
        ((uid, url),) = site.ask("SELECT uid, url FROM feeds WHERE uid = ?", errand.subject)
        channel = ET.fromstring(fetch(url)).find("channel")
        if channel is None:
            raise ValueError(f"{url} is no feed")
        items = [
            (uid, item.findtext("guid", ""), item.findtext("title", ""), item.findtext("link", ""))
            for item in channel.iter("item")
        ]
        site.change("UPDATE feeds SET title = ? WHERE uid = ?", channel.findtext("title", ""), uid)
        new = site.change_many("INSERT OR IGNORE INTO feed_items VALUES (?, ?, ?, ?)", items)
        site.errand_done(errand)
    return f"{new} new of {len(items)}".encode()


def weblogscom(world: World, task: Task) -> bytes:
    """Tell the directory of weblogs that somebody has written something."""
    with world.site() as site:
        errand = site.take_errand("weblogscom")
        if errand is None:
            return b"no news"
        ((name,),) = site.ask("SELECT name FROM users WHERE uid = ?", errand.subject)
        with ServerProxy(f"{world.web_url}/RPC2") as directory:
            answer: Any = directory.weblogUpdates.ping(name, f"http://{name}.journals.example/")
        if answer["flerror"]:
            raise ValueError(answer["message"])
        site.errand_done(errand)
    return str(answer["message"]).encode()
