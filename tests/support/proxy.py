"""A network between a client and a server that can be cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually

LONG_REQUEST_BYTES = 500


class Proxy:
    """Listens on a port of its own and passes everything on, until it is told to cut."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections_total = 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_open = True  # the network is there
        self._holds_answers = threading.Event()
        self._holds_answers.set()
        self._stalls = False
        self.has_stalled = threading.Event()  # a request was passed on in part
        self.stalled_request = b""
        self._passes_requests = threading.Event()
        self._passes_requests.set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"gearman://{HOST}:{self.port}"

    def cut(self) -> None:
        """End all connections at once; new ones may be made."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def go_away(self) -> None:
        """Cut, and let nobody in."""
        self._is_open = False
        self.cut()

    def come_back(self) -> None:
        self._is_open = True

    def hold_answers(self) -> None:
        """From now on nothing comes back from the server."""
        self._holds_answers.clear()

    def release_answers(self) -> None:
        self._holds_answers.set()

    def stall_requests(self) -> None:
        """From the middle of the next long request on, nothing goes to the server."""
        self._passes_requests.clear()
        self.has_stalled.clear()
        self._stalls = True

    def release_requests(self) -> None:
        self._stalls = False
        self._passes_requests.set()

    def wait_connections(self, total: int) -> None:
        eventually(lambda: self.connections_total >= total, f"{total} connections were made")

    def close(self) -> None:
        self._is_open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._holds_answers.set()
        self._passes_requests.set()
        self.cut()
        self._accepting.join(DEADLINE_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._is_open:
                client.close()
                continue
            try:
                server = socket.create_connection((HOST, self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
                self.connections_total += 1
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            while data := source.recv(65_536):
                if is_answer:
                    self._holds_answers.wait()
                elif self._stalls and len(data) >= LONG_REQUEST_BYTES:
                    self.stalled_request = data
                    target.sendall(data[: len(data) // 2])
                    data = data[len(data) // 2 :]
                    self.has_stalled.set()
                    self._passes_requests.wait()
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(source)
        source.close()  # the other direction closes the other one


@contextmanager
def cuttable(port: int) -> Iterator[Proxy]:
    """A proxy in front of this port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
