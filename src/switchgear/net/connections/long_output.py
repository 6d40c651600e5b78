"""`LongOutput`: output of a connection that is written piece by piece, over several turns of the event loop."""

from __future__ import annotations

from collections import deque

__all__ = ["LongOutput"]


class LongOutput:
    """Pieces of output in their order; `size` is the number of bytes in them, and 0 if there are none."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[bytes | memoryview] = deque()

    def add(self, pieces: list[bytes], size: int) -> None:
        """Add pieces, which have `size` bytes together."""
        self._pieces.extend(pieces)
        self.size += size

    def take(self, most_bytes: int) -> list[bytes | memoryview]:
        """Remove and return the first bytes; what remains of a piece is not copied."""
        pieces = self._pieces
        taken: list[bytes | memoryview] = []
        size = 0
        while pieces and size < most_bytes:
            piece = pieces.popleft()
            room = most_bytes - size
            if len(piece) > room:
                view = memoryview(piece)
                pieces.appendleft(view[room:])
                piece = view[:room]
            taken.append(piece)
            size += len(piece)
        self.size -= size
        return taken

    def take_all(self) -> list[bytes | memoryview]:
        """Remove and return everything."""
        taken = list(self._pieces)
        self._pieces.clear()
        self.size = 0
        return taken
