"""`RecentHead`: a head of a connection's recent requests, by which the next head of the same kind is read faster.

A client that works takes a job, reports on it, takes the next one: its heads repeat, except for the number of the job.
So a head that differs from a recent one in its target only is not parsed again.
"""

from __future__ import annotations

import re
from typing import Final

from switchgear.protocols.http.messages import RequestHead

__all__ = ["USUAL_LINE", "RecentHead"]

# A first line with nothing in it that has to be looked at twice. The target decides nothing about the rest of such a
# head: neither how it is framed, nor which headers are right.
USUAL_LINE: Final = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[A-Za-z0-9/:._~%?&=+,@-]*) HTTP/1\.1\r\n")
USUAL_IN_TARGET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/:._~%?&=+,@-"
LAST_NUMBER: Final = re.compile(rb"(/|/.*[^0-9])([0-9]{1,20})([^0-9]*)")


def is_usual_target(target: bytes) -> bool:
    """Whether `USUAL_LINE` has such targets."""
    return target[:1] == b"/" and not target.translate(None, USUAL_IN_TARGET)


class RecentHead:
    """The bytes of a head, cut where the next head may differ."""

    def __init__(self, data: bytes, head: RequestHead) -> None:
        self.data = data
        self.head = head
        self.end = 0  # of the head that was found last
        # The head before and after its target, if its first line is a usual one.
        line = USUAL_LINE.match(data)
        self._start = b"" if line is None else data[: line.start(2)]
        self._rest = b"" if line is None else data[line.end(2) :]
        # The same before and after the last number in the target, and how many digits it has; 0: there is none.
        self._number_start = b""
        self._number_rest = b""
        self._number_digits = 0
        self._number_end_bytes = 0  # of the target, after the number
        self._numbered: RequestHead | None = None  # the first head that differs from another one in this number only
        self._note_number(b"" if line is None else line[2])

    def repeated(self, data: bytes, start: int) -> RequestHead | None:
        """The head that starts here, if it is this one, or differs from the last one in the last number only."""
        end = start + len(self.data)
        if data[start:end] == self.data:  # compiled, `startswith` takes three times as long
            self.end = end
            return self.head
        digits_start = start + len(self._number_start)
        digits_end = digits_start + self._number_digits
        if not self._number_digits or data[start:digits_start] != self._number_start:
            return None
        end = digits_end + len(self._number_rest)
        if not data[digits_start:digits_end].isdigit() or data[digits_end:end] != self._number_rest:
            return None
        self.end = end
        head = self.head.with_target(data[start + len(self._start) : digits_end + self._number_end_bytes])
        if self._numbered is None:
            head.number_start = len(self._number_start) - len(self._start)
            head.number_end = head.number_start + self._number_digits
            self._numbered = head
        else:
            head.numbered = self._numbered
        return head

    def with_other_target(self, data: bytes, start: int, most_bytes: int) -> RequestHead | None:
        """The head that starts here, if it differs from this one in its target only, of so many bytes at most."""
        target_start = start + len(self._start)
        if not self._start or data[start:target_start] != self._start:
            return None
        target_end = data.find(b" ", target_start, target_start + most_bytes + 1)
        end = target_end + len(self._rest)
        if target_end < 0 or data[target_end:end] != self._rest:
            return None
        target = data[target_start:target_end]
        if not is_usual_target(target):
            return None
        self.end = end
        self._note_number(target)
        return self.head.with_target(target)

    def _note_number(self, target: bytes) -> None:
        """Remember where the last number in the target of the last head is."""
        self._numbered = None
        found = LAST_NUMBER.fullmatch(target)
        if found is None:
            self._number_digits = 0
            return
        self._number_start = self._start + found[1]
        self._number_digits = found.end(2) - found.start(2)
        self._number_end_bytes = len(found[3])
        self._number_rest = found[3] + self._rest
