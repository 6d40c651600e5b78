"""The files of the dashboard, read and compressed once.

The page itself is at the root of a listener, and names all other files relative to itself, so that it works under any
path of a proxy.  Those files are below a folder named after a digest of all of them: whatever a browser has got from
there never changes, and a new version of the server has another folder.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["PAGE", "Asset", "Assets", "load_assets", "without_indentation"]

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


class Asset:
    """One file: its type, its bytes, the same compressed, and a tag that changes with them."""

    def __init__(self, name: str, body: bytes) -> None:
        self.content_type = CONTENT_TYPES[name[name.rindex(".") :]]
        self.body = body
        self.compressed = gzip.compress(body, 9, mtime=0)
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
    """The files of the package."""
    contents: dict[str, bytes] = {}
    _read_folder(files("switchgear.dashboard") / "static", "", contents)
    return Assets(contents)


def _read_folder(folder: Traversable, prefix: str, contents: dict[str, bytes]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _read_folder(entry, f"{prefix}{entry.name}/", contents)
        elif entry.name[entry.name.rfind(".") :] in CONTENT_TYPES:
            text = entry.read_bytes()
            is_own = prefix != VENDORED
            contents[prefix + entry.name] = without_indentation(text) if is_own else text


def without_indentation(text: bytes) -> bytes:
    """A text without indentation, blank lines and lines of comment, which are a twentieth of what is loaded.

    So a file of the dashboard has no line that begins with `//` within a text, and no text that needs its indentation.
    """
    lines = [line.strip() for line in text.split(b"\n")]
    return b"\n".join(line for line in lines if line and not line.startswith(b"//")) + b"\n"
