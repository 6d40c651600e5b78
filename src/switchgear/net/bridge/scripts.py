"""The Lua scripts that run in Redis, read from the folder `lua` beside this module."""

from __future__ import annotations

from hashlib import sha1
from importlib import resources

__all__ = ["SCRIPTS", "Script"]


class Script:
    """One script: its text, and the SHA1 by which Redis runs it once it is loaded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = resources.files(__package__).joinpath("lua", f"{name}.lua").read_bytes()
        self.sha = sha1(self.text).hexdigest().encode()


class Scripts:
    """The scripts of the bridge, by name."""

    def __init__(self) -> None:
        self.claim = Script("claim")
        self.give_back = Script("give_back")
        self.renew = Script("renew")
        self.take_over = Script("take_over")
        self.report = Script("report")
        self.finish = Script("finish")
        self.count = Script("count")
        self.push = Script("push")
        self.fetch = Script("fetch")
        self.withdraw = Script("withdraw")
        self.poll = Script("poll")

    def all(self) -> list[Script]:
        return list(vars(self).values())


SCRIPTS = Scripts()
