"""The table of all fuzz targets."""

from __future__ import annotations

from typing import Final

from fuzz.client_targets import CLIENTS
from fuzz.document_targets import DOCUMENTS
from fuzz.http_client_target import HTTP_CLIENT
from fuzz.http_targets import HTTP
from fuzz.long_line_target import LONG_LINE
from fuzz.message_codecs import MESSAGE_CODECS
from fuzz.pattern_targets import PATTERNS
from fuzz.row_targets import ROWS
from fuzz.session_targets import SESSIONS
from fuzz.stream_codecs import STREAM_CODECS
from fuzz.target import Target
from fuzz.text_targets import TEXTS
from fuzz.zmtp_targets import ZMTP

__all__ = ["TARGETS"]

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        *STREAM_CODECS,
        *HTTP,
        *LONG_LINE,
        *MESSAGE_CODECS,
        *ZMTP,
        *PATTERNS,
        *TEXTS,
        *ROWS,
        *DOCUMENTS,
        *CLIENTS,
        *HTTP_CLIENT,
        *SESSIONS,
    )
}
