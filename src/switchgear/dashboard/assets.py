"""The files of the dashboard, read and compressed once.

The page itself is at the root of a listener, and names all other files relative to itself, so that it works under any
path of a proxy.  Those files are below a folder named after a digest of all of them: whatever a browser has got from
there never changes, and a new version of the server has another folder.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from switchgear.dashboard.compacting import compact_script, compact_style

__all__ = ["PAGE", "Asset", "Assets", "are_loaded", "load_assets", "load_in_steps", "read_file"]

PAGE: Final = "index.html"
# In the page, where the folder of the digest belongs.
FOLDER_MARK: Final = b"static/DIGEST/"
# Files of others are sent as they are.
VENDORED: Final = "vendor/"

CONTENT_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}

GZIP_WINDOW: Final = 31  # the largest window, with the header of gzip
MEMORY_LEVEL: Final = 7  # packs files of this size a little better than the default of 8


@cache
def compressed(body: bytes) -> bytes:
    """A file, compressed once, as gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, GZIP_WINDOW, MEMORY_LEVEL)
    return packer.compress(body) + packer.flush()


class Asset:
    """One file: its type, its bytes, the same compressed, and a tag that changes with them."""

    def __init__(self, name: str, body: bytes) -> None:
        self.content_type = CONTENT_TYPES[name[name.rindex(".") :]]
        self.body = body
        self.compressed = compressed(body)
        self.tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:20].encode()


class Assets:
    """All files: the page, and the others by their names below the folder of the digest."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        whole = hashlib.sha256()
        for name in sorted(contents):
            whole.update(b"%b %d " % (name.encode(), len(contents[name])))
            whole.update(contents[name])
        self.digest = whole.hexdigest()[:16]
        page = contents[PAGE].replace(FOLDER_MARK, b"static/%b/" % self.digest.encode())
        self.page = Asset(PAGE, page)
        self.files = {name: Asset(name, body) for name, body in contents.items() if name != PAGE}

    @property
    def compressed_bytes(self) -> int:
        """How much a browser loads the first time, if it loads everything."""
        return len(self.page.compressed) + sum(len(file.compressed) for file in self.files.values())


@cache
def load_assets() -> Assets:
    """Read and compress the files of the dashboard."""
    return Assets({name: read_file(name) for name in file_names()})


def are_loaded() -> bool:
    """Whether `load_assets` answers at once."""
    return load_assets.cache_info().currsize > 0


def load_in_steps() -> Iterator[None]:
    """Prepare `load_assets` file by file, because all of them at once take some fifty milliseconds."""
    for name in file_names():
        compressed(read_file(name))
        yield


@cache
def file_names() -> tuple[str, ...]:
    """The paths of all files below the folder of the dashboard."""
    return tuple(_names_in(files("switchgear.dashboard") / "static", ""))


def _names_in(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names_in(entry, f"{prefix}{entry.name}/")
        elif entry.name[entry.name.rfind(".") :] in CONTENT_TYPES:
            yield prefix + entry.name


@cache
def read_file(name: str) -> bytes:
    """A file as it is sent; those of the dashboard itself without what only people need, a tenth of what is loaded."""
    text = (files("switchgear.dashboard") / "static").joinpath(name).read_bytes()
    if name.startswith(VENDORED):
        return text
    if name.endswith(".js"):
        return compact_script(text.decode()).encode()
    return compact_style(text.decode()).encode() if name.endswith(".css") else text
