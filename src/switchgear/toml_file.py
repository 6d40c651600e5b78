"""`read_toml_file`: what is in a TOML file, or one error that says what is wrong with it.

The server reads its files again on SIGHUP, in the thread that serves everybody. So a file must not keep it waiting, as
a named pipe would, and whatever is in it must not raise anything that the server does not expect: `tomllib` lets some
errors of Python through.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["NotToml", "read_toml_file"]

MOST_BYTES: Final = 16 * 1024 * 1024
# `tomllib` remembers each beginning of a key, so a key of 200,000 parts would take gigabytes.
MOST_PARTS: Final = 100
_PART: Final = rb"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)"""
_LONG_KEY: Final = re.compile(rb"^[ \t\[]*+" + _PART + rb"(?:[ \t]*+\.[ \t]*+" + _PART + rb"){%d}" % MOST_PARTS, re.M)


class NotToml(ValueError):
    """A file is not what is expected; the text says what is wrong."""


def read_toml_file(
    path: Path,
    check: Callable[[os.stat_result], None] | None = None,
    *,
    most_bytes: int = MOST_BYTES,
    is_pipe_allowed: bool = False,
) -> dict[str, Any]:
    """The document in a file; raises OSError or NotToml.

    `check` may look at the opened file's owner and mode, and raise what it likes.  A pipe, as `<(command)` makes one in
    a shell, is read to its end if that is allowed and there is a writer.
    """
    # Without O_NONBLOCK, opening a named pipe waits until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        is_pipe = is_pipe_allowed and stat.S_ISFIFO(before.st_mode)
        if stat.S_ISDIR(before.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not is_pipe and not stat.S_ISREG(before.st_mode):
            raise NotToml("not a regular file")
        if check is not None:
            check(before)
        os.set_blocking(descriptor, True)
        data = _read(descriptor, most_bytes + 1)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise NotToml(f"it has more than {most_bytes} bytes")
    if is_pipe:
        if not data:
            raise NotToml("nothing was written to this pipe")
    elif len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        raise NotToml("it was changed while it was read")
    try:
        return toml_document(data)
    except NotToml as error:
        raise NotToml(f"not valid TOML: {error}") from None


def _read(descriptor: int, most_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size < most_bytes:
        piece = os.read(descriptor, most_bytes - size)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def toml_document(data: bytes) -> dict[str, Any]:
    """The document in this text; raises NotToml."""
    if _LONG_KEY.search(data) is not None:
        raise NotToml(f"a key has more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise NotToml("not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from None
    except RecursionError:
        raise NotToml("nested too deeply") from None
    except ValueError:  # Python does not convert as many digits
        raise NotToml("a number has too many digits") from None
