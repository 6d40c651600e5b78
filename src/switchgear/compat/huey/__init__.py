"""Huey's interface over Switchgear: `from switchgear.compat.huey import RedisHuey, crontab`.

`switchgear worker MODULE:huey` takes the place of the consumer.  See docs/howto/compatibility.md.
"""

from __future__ import annotations

from switchgear.compat.huey.app import HueyApp as Huey
from switchgear.compat.huey.crontab import HueyCrontab as crontab  # noqa: N813 - Huey's name
from switchgear.compat.huey.exceptions import CancelExecution, HueyException, ResultTimeout, RetryTask, TaskException
from switchgear.compat.huey.result import HueyResult as Result
from switchgear.compat.huey.result import HueyResultGroup as ResultGroup

# Where Huey keeps its jobs does not matter: a Switchgear server has them.
RedisHuey = PriorityRedisHuey = RedisExpireHuey = SqliteHuey = FileHuey = MemoryHuey = Huey

__all__ = [
    "CancelExecution",
    "FileHuey",
    "Huey",
    "HueyException",
    "MemoryHuey",
    "PriorityRedisHuey",
    "RedisExpireHuey",
    "RedisHuey",
    "Result",
    "ResultGroup",
    "ResultTimeout",
    "RetryTask",
    "SqliteHuey",
    "TaskException",
    "crontab",
]
