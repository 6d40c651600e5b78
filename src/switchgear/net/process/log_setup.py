"""Sets up the log of a server: where it goes, and in which form."""

from __future__ import annotations

import logging
import sys
from logging.handlers import WatchedFileHandler
from typing import Final

from switchgear.config import Config
from switchgear.errors import ConfigError
from switchgear.log_format import log_formatter

__all__ = ["configure_log", "logs_to_stderr", "reopen_log"]

# What the log has: our own lines, and those of the event loop about defects.
LOGGERS: Final = ("switchgear", "asyncio")


def configure_log(config: Config) -> None:
    """Configure where the log is written, replacing the previous configuration."""
    handler: logging.Handler
    stream = None
    if config.log.file == "none":
        handler = logging.NullHandler()
    elif logs_to_stderr(config):
        stream = sys.stderr
        handler = logging.StreamHandler(stream)
    else:
        try:
            handler = WatchedFileHandler(config.log.file, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"log.file: cannot write {config.log.file}: {error.strerror}") from error
    handler.setFormatter(
        log_formatter(config.log.format, stream, "%(asctime)s %(levelname)-7s %(message)s", "%(message)s")
    )
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for old in list(logger.handlers):
            if isinstance(old, (logging.StreamHandler, logging.NullHandler)):
                logger.removeHandler(old)
                old.close()
        logger.addHandler(handler)
        logger.propagate = False
    logging.raiseExceptions = False  # if the disk is full, a lost line must not become a traceback
    logging.getLogger("switchgear").setLevel(config.log.level.upper())


def logs_to_stderr(config: Config) -> bool:
    """Whether the log goes to standard error."""
    return config.log.file in ("", "stderr")


def reopen_log() -> None:
    """Continue in a new file if the present one was moved away."""
    for handler in logging.getLogger("switchgear").handlers:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
