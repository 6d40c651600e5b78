"""`HueyCrontab`: when periodic tasks run."""

from __future__ import annotations

from typing import Any

from switchgear.compat.not_supported import NotSupported

__all__ = ["HueyCrontab"]


class HueyCrontab:
    """The times of a cron line.

    >>> HueyCrontab(minute="0", hour="*/3").cron
    '0 */3 * * *'
    """

    def __init__(
        self,
        minute: Any = "*",
        hour: Any = "*",
        day: Any = "*",
        month: Any = "*",
        day_of_week: Any = "*",
        strict: bool = False,
    ) -> None:
        if str(day) != "*" and str(day_of_week) != "*":
            raise NotSupported("crontab with day and day_of_week is not supported: cron runs on both kinds of days")
        self.cron = " ".join(str(part).replace(" ", "") for part in (minute, hour, day, month, day_of_week))
