"""dirty: what was computed from data that have changed since."""

from __future__ import annotations

import json

from examples.livejournal.site import Site
from examples.livejournal.tasks.base import Task
from examples.livejournal.world import World

__all__ = ["dirty"]


def dirty(world: World, task: Task) -> bytes:
    """Bring one such thing up to date: `friends` or `backup` of a user."""
    with world.site() as site:
        errand = site.take_errand("dirty")
        if errand is None:
            return b"all is clean"
        what, _, uid = errand.subject.partition("-")
        content = {"friends": _friends, "backup": _backup}[what](site, int(uid))
        folder = world.place / what
        folder.mkdir(exist_ok=True)
        (folder / f"{uid}.json").write_text(json.dumps(content, indent=1))
        site.errand_done(errand)
    return f"{what} of {uid}".encode()


def _friends(site: Site, uid: int) -> object:
    friends = {friend for (friend,) in site.ask("SELECT friend FROM friends WHERE uid = ?", uid)}
    friend_of = {other for (other,) in site.ask("SELECT uid FROM friends WHERE friend = ?", uid)}
    return {"friends": sorted(friends), "friend_of": sorted(friend_of), "mutual": sorted(friends & friend_of)}


def _backup(site: Site, uid: int) -> object:
    ((name, birthday, account),) = site.ask("SELECT name, birthday, account FROM users WHERE uid = ?", uid)
    return {"name": name, "birthday": birthday, "account": account, "friends": _friends(site, uid)}
