"""A mail server that delivers nothing: it takes letters over SMTP and keeps them in a folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Letter", "SmtpSink"]


@dataclass(frozen=True)
class Letter:
    """What a client handed over: the envelope, and the message as it came."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes


class SmtpSink:
    """Listens on a free port of loopback while its block lasts."""

    def __init__(self, folder: Path) -> None:
        self.letters: list[Letter] = []
        self.port = 0
        self._folder = folder

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example takes letters\r\n")
        sender, recipients = "", list[str]()
        while line := await reader.readline():
            verb, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            answer = "250 OK"
            match verb.upper():
                case "EHLO" | "HELO":
                    answer = "250 mail.example"
                case "NOOP":
                    pass
                case "RSET":
                    sender, recipients = "", []
                case "MAIL":
                    sender, recipients = _address_in(rest), []
                case "RCPT" if sender:
                    recipients.append(_address_in(rest))
                case "DATA" if recipients:
                    writer.write(b"354 go on, and end with a dot\r\n")
                    content = await _read_message(reader)
                    if content is None:
                        break
                    self._keep(Letter(sender, tuple(recipients), content))
                    sender, recipients = "", []
                case "RCPT" | "DATA":
                    answer = "503 say first who writes to whom"
                case "QUIT":
                    answer = "221 bye"
                case _:
                    answer = "500 what?"
            writer.write(answer.encode() + b"\r\n")
            if answer.startswith("221"):
                break
        writer.close()

    def _keep(self, letter: Letter) -> None:
        self.letters.append(letter)
        (self._folder / f"{len(self.letters):03}.eml").write_bytes(letter.content)


async def _read_message(reader: asyncio.StreamReader) -> bytes | None:
    """All lines up to the dot, without the dots that were put before others; None: the client is gone before."""
    lines: list[bytes] = []
    while line := await reader.readline():
        if line == b".\r\n":
            return b"".join(lines)
        lines.append(line[1:] if line.startswith(b".") else line)
    return None


def _address_in(text: str) -> str:
    """`jan@example.org` of `FROM:<jan@example.org> size=123`."""
    return text.partition("<")[2].partition(">")[0]
