"""How long does an innocent client wait while others send what takes long?

    python -m bench.stalls [--jobs 300000] [--store memory:]

Starts a server of its own, lets peers do each of the things below, and prints the longest time that another connection
waited for the answer to an ECHO_REQ.  Run it on an idle machine; the figures include what the machine does besides.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq


def packet(kind: int, *arguments: bytes) -> bytes:
    body = b"\0".join(arguments)
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


class Connection:
    """A Gearman connection that waits for its answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.settimeout(600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def send(self, *packets: bytes) -> None:
        self._socket.sendall(b"".join(packets))

    def receive(self) -> bytes:
        header = self._reader.read(12)
        if len(header) < 12:
            raise EOFError("the server hung up")
        return self._reader.read(struct.unpack(">I", header[8:])[0])

    def ask(self, *packets: bytes) -> bytes:
        self.send(*packets)
        return self.receive()

    def control(self, verb: str, **arguments: object) -> Any:
        return json.loads(self.ask(packet(1001, verb.encode(), json.dumps(arguments).encode())))

    def lines(self, command: bytes) -> int:
        """Send a text command; how many lines came before the one with a dot."""
        self._socket.sendall(command + b"\n")
        return sum(1 for _ in iter(self._reader.readline, b".\n"))

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


def wait_for_echoes(port: int, longest_seconds: Any) -> None:
    """Send an ECHO_REQ every few milliseconds and note the longest wait."""
    connection = Connection(port)
    while True:
        began = time.monotonic()
        try:
            connection.ask(packet(16, b"x"))
        except (EOFError, OSError):
            return
        longest_seconds.value = max(longest_seconds.value, time.monotonic() - began)
        time.sleep(0.002)


class Bystander:
    """An innocent client in a process of its own, so that it does not wait for the interpreter of the others."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._longest_seconds = context.Value("d", 0.0)
        self._process = context.Process(target=wait_for_echoes, args=(port, self._longest_seconds), daemon=True)
        self._process.start()

    def take_longest_seconds(self) -> float:
        """The longest wait since the last call."""
        longest = self._longest_seconds.value
        self._longest_seconds.value = 0.0
        return float(longest)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def dwork_task(name: bytes) -> bytes:
    body = b"\n" + varint(len(name)) + name + b"\x12\0"
    return b"\x12" + varint(len(body)) + body


class Stage:
    """A server, an innocent client, and what others do."""

    def __init__(self, gearman: int, dwork: int, jobs: int) -> None:
        self.gearman = gearman
        self.jobs = jobs
        self.peer = Connection(gearman)
        self.dwork: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self.dwork.set(zmq.LINGER, 0)
        self.dwork.connect(f"tcp://127.0.0.1:{dwork}")
        self.bystander = Bystander(gearman)

    def submit(self, function: bytes, options: dict[str, object], count: int) -> list[bytes]:
        """Submit many jobs alike; returns their handles."""
        text = json.dumps(options).encode()
        handles: list[bytes] = []
        while len(handles) < count:
            some = min(500, count - len(handles))
            self.peer.send(*[packet(1000, function, b"", text, b"")] * some)
            handles += [self.peer.receive() for _ in range(some)]
        return handles

    def measure(self, what: str, action: Callable[[], object]) -> None:
        self.bystander.take_longest_seconds()
        began = time.monotonic()
        action()
        seconds = time.monotonic() - began
        time.sleep(0.1)
        longest_ms = self.bystander.take_longest_seconds() * 1000
        print(f"{what:<60} {seconds:8.2f} s {longest_ms:8.0f} ms", flush=True)

    # --- what others do ---

    def create(self) -> None:
        self.dwork.send(b"\x08\0" + b"".join(dwork_task(b"t%d" % number) for number in range(self.jobs)))
        self.dwork.recv()

    def complete(self) -> None:
        tasks = b"".join(dwork_task(b"unknown%d" % number) for number in range(self.jobs))
        self.dwork.send(b"\x08\x02" + tasks + b"2\x01w")
        self.dwork.recv()

    def leave(self) -> None:
        other = Connection(self.gearman)
        other.send(*[packet(7, b"nobody", b"", b"x")] * self.jobs)
        for _ in range(self.jobs):
            other.receive()
        other.close()
        self.wait_until_gone("nobody")

    def wait_until_gone(self, function: str) -> None:
        while any(each["name"] == function and each["total"] for each in self.peer.control("functions")):
            time.sleep(0.05)

    def cancel_all(self) -> None:
        while self.peer.control("cancel", function="plain", limit=1000)["more"]:
            pass

    def pipelined(self) -> None:
        other = Connection(self.gearman)
        sender = threading.Thread(target=other.send, args=[packet(16)] * 200_000)
        sender.start()
        for _ in range(200_000):
            other.receive()
        sender.join()
        other.close()

    def due(self) -> None:
        at = time.time() + max(5.0, self.jobs / 10_000)
        self.submit(b"timed", {"run_at": at}, min(self.jobs, 100_000))
        time.sleep(max(0.0, at + 0.5 - time.time()))

    def run(self) -> None:
        print(f"{'':<60} {'took':>10} {'stall':>11}")
        self.measure(f"nothing, and {self.jobs} jobs are submitted", lambda: self.submit(b"plain", {}, self.jobs))
        self.measure("show jobs", lambda: self.peer.lines(b"show jobs"))
        self.measure("show unique jobs", lambda: self.peer.lines(b"show unique jobs"))
        self.measure("jobs, the newest 1000", lambda: self.peer.control("jobs", limit=1000))
        self.measure("jobs of a name that nobody has", lambda: self.peer.control("jobs", name="none"))
        self.measure("jobs of a unique key that nobody has", lambda: self.peer.control("jobs", unique="none"))
        self.measure("jobs that are done", lambda: self.peer.control("jobs", states=["done"]))
        self.measure("cancel of all that match, 1000 at a time", self.cancel_all)
        self.measure("jobs that were cancelled, an error that none has", lambda: self.peer.control("jobs", error="zzz"))
        [handle] = self.submit(b"hub", {}, 1)
        self.submit(b"leaf", {"after": [handle.decode()]}, self.jobs)
        cascade = {"handle": handle.decode(), "cascade": True}
        self.measure("cancel --cascade", lambda: self.peer.control("cancel", **cascade))
        self.measure("a client with as many foreground jobs leaves", self.leave)
        self.measure("200,000 packets in one go", self.pipelined)
        self.measure("100,000 jobs are due at one moment", self.due)
        self.measure("dwork Create of as many tasks", self.create)
        self.measure("dwork Complete of as many unknown tasks", self.complete)
        for number in range(5000):
            self.peer.send(b"create function f%d\n" % number)
            self.peer._reader.readline()
        self.measure("status, of 5,000 functions", lambda: self.peer.lines(b"status"))
        self.measure("functions", lambda: self.peer.control("functions"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--store", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchgear-stalls-") as directory:
        ports = []
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                ports.append(free.getsockname()[1])
        store = options.store or f"sqlite:{directory}/jobs.db"
        listen = [f"gearman://127.0.0.1:{ports[0]}", f"dwork://127.0.0.1:{ports[1]}"]
        arguments = [word for url in listen for word in ("--listen", url)]
        with Path(directory, "log").open("w") as log:
            command = [sys.executable, "-m", "switchgear", "serve", "--store", store, "--joblog", "off", *arguments]
            server = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                for _ in range(200):
                    try:
                        socket.create_connection(("127.0.0.1", ports[0])).close()
                        break
                    except OSError:
                        time.sleep(0.05)
                Stage(ports[0], ports[1], options.jobs).run()
            finally:
                server.kill()
                server.wait()


if __name__ == "__main__":
    main()
