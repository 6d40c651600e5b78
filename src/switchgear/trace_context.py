"""`traceparent`: the trace that a job belongs to, in the form of W3C Trace Context.

00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
version, trace id, id of the submitter's span, flags
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["TRACEPARENT_BYTES", "is_traceparent", "trace_id"]

TRACEPARENT_BYTES: Final = 55
# Neither id is all zeros, and version ff is forbidden.  Later versions may have more behind these fields, which is
# not for a server that does not know them.
_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(data: bytes) -> bool:
    """Whether these bytes are a valid traceparent."""
    return _TRACEPARENT.fullmatch(data) is not None


def trace_id(trace: bytes) -> str:
    """The trace id of a valid traceparent, in 32 hexadecimal digits; empty if there is none."""
    return trace[3:35].decode("ascii")
