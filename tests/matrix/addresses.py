"""What both sides of a cell have to know."""

from __future__ import annotations

import msgspec

__all__ = ["Addresses"]


class Addresses(msgspec.Struct, frozen=True):
    """Where the sides of one cell meet.  Empty: that is not part of it."""

    function: str
    gearman: str
    wmp: str
    gearmonkey: str
    redis: str
    http: str = ""
    pingpong_clients: str = ""
    pingpong_workers: str = ""
    dwork: str = ""
