"""Small servers that misbehave on purpose.  Without a fault both do what they should, and a generator is content."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"
HEADER = struct.Struct(">4sII")
CAN_DO, PRE_SLEEP, NOOP, SUBMIT_JOB, JOB_CREATED, GRAB_JOB, NO_JOB, JOB_ASSIGN = 1, 4, 6, 7, 8, 9, 10, 11
WORK_COMPLETE, ECHO_REQ, ECHO_RES, SUBMIT_JOB_BG, ERROR, OPTION_REQ, OPTION_RES = 13, 16, 17, 18, 19, 26, 27
CREDIT, JOB_PUSH = 1007, 1008
VICTIM = 5  # the job, counted from 1, that a fault befalls

Tell = Callable[[int, bytes], None]


class Job:
    def __init__(self, number: int, function: bytes, unique: bytes, payload: bytes, owner: Tell | None) -> None:
        self.number = number
        self.handle = b"H:fake:%d" % number
        self.function, self.unique, self.payload, self.owner = function, unique, payload, owner


class FakeGearman:
    """A Gearman server in memory; one lock, a thread for each connection."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.lock = threading.Lock()
        self.count = 0
        self.queue: list[Job] = []
        self.running: dict[bytes, Job] = {}
        self.sleepers: list[Tell] = []
        self.credits: list[Tell] = []

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        def tell(kind: int, body: bytes = b"") -> None:
            stream.wfile.write(HEADER.pack(b"\0RES", kind, len(body)) + body)

        while first := stream.rfile.read(1):
            if first != b"\0":
                stream.rfile.readline()
                with self.lock:
                    stream.wfile.write(b"gearblast\t%d\t0\t0\n.\n" % (len(self.queue) + len(self.running)))
                continue
            _, kind, size = HEADER.unpack(first + stream.rfile.read(HEADER.size - 1))
            body = stream.rfile.read(size)
            with self.lock:
                if not self.take(kind, body, tell):
                    return

    def take(self, kind: int, body: bytes, tell: Tell) -> bool:
        """Whether the connection stays."""
        if kind in (SUBMIT_JOB, SUBMIT_JOB_BG):
            return self.submit(kind, body, tell)
        if kind == GRAB_JOB:
            job = self.next_job()
            tell(NO_JOB, b"") if job is None else tell(
                JOB_ASSIGN, b"\0".join((job.handle, job.function, self.told(job)))
            )
        elif kind == PRE_SLEEP:
            if self.queue:
                tell(NOOP, b"")
            else:
                self.sleepers.append(tell)
        elif kind == WORK_COMPLETE:
            self.complete(body)
        elif kind == CAN_DO and self.fault == "pushes beyond credit":
            self.credits.append(tell)
            self.push()
        elif kind == CREDIT:
            self.credits += [tell] * int(body.split(b"\0")[0])
            self.push()
        elif kind == ECHO_REQ:
            tell(ECHO_RES, body)
        elif kind == OPTION_REQ:
            tell(OPTION_RES, body)
        return True

    def submit(self, kind: int, body: bytes, tell: Tell) -> bool:
        self.count += 1
        is_victim = self.count == VICTIM
        if is_victim and self.fault == "refuses":
            tell(ERROR, b"QUEUE_ERROR\0Job queue is full")
            return True
        if is_victim and self.fault == "hangs up":
            return False
        function, unique, payload = body.split(b"\0", 2)
        job = Job(self.count, function, unique, payload, tell if kind == SUBMIT_JOB else None)
        if is_victim and self.fault == "doubles a handle":
            job.handle = b"H:fake:1"
        tell(JOB_CREATED, job.handle)
        if is_victim and self.fault == "loses a job":
            return True
        self.queue.append(job)
        for wake in self.sleepers:
            wake(NOOP, b"")
        self.sleepers.clear()
        self.push()
        return True

    def next_job(self) -> Job | None:
        if not self.queue:
            return None
        job = self.queue.pop(0)
        if job.number == VICTIM and self.fault == "doubles a job":
            self.queue.insert(0, Job(job.number + 1000, job.function, job.unique, job.payload, job.owner))
        self.running[job.handle] = job
        return job

    def told(self, job: Job) -> bytes:
        is_spoilt = job.number == VICTIM and self.fault == "spoils a payload"
        return job.payload[:-1] + b"!" if is_spoilt else job.payload

    def push(self) -> None:
        while self.credits and (job := self.next_job()) is not None:
            worker = self.credits[0]
            del self.credits[0]
            attempt = b"2" if job.number == VICTIM and self.fault == "pushes again" else b"1"
            figures = (attempt, b"0", b"0", b"0")
            worker(JOB_PUSH, b"\0".join((job.handle, job.function, job.unique, *figures, self.told(job))))

    def complete(self, body: bytes) -> None:
        handle, _, result = body.partition(b"\0")
        job = self.running.pop(handle)
        if job.owner is None or (job.number == VICTIM and self.fault == "keeps a result"):
            return
        times = 2 if job.number == VICTIM and self.fault == "doubles a result" else 1
        for _ in range(times):
            job.owner(WORK_COMPLETE, handle + b"\0" + result)


class FakeBeanstalkd:
    """put, reserve, delete, use and stats-tube."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.lock = threading.Condition()
        self.count = 0
        self.ready: list[tuple[int, bytes]] = []
        self.reserved: dict[int, bytes] = {}

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        while words := stream.rfile.readline().split():
            payload = stream.rfile.read(int(words[4]) + 2)[:-2] if words[0] == b"put" else b""
            with self.lock:
                stream.wfile.write(self.answer(words, payload))

    def answer(self, words: list[bytes], payload: bytes) -> bytes:
        if words[0] == b"use":
            return b"USING %b\r\n" % words[1]
        if words[0] == b"put":
            return self.put(payload)
        if words[0] == b"reserve":
            return self.reserve()
        if words[0] == b"delete":
            number = int(words[1])
            del self.reserved[number]
            return b"NOT_FOUND\r\n" if number == VICTIM and self.fault == "forgets a job" else b"DELETED\r\n"
        figures = b"---\ncurrent-jobs-ready: %d\ncurrent-jobs-reserved: %d\n" % (len(self.ready), len(self.reserved))
        return b"OK %d\r\n%b\r\n" % (len(figures), figures)

    def put(self, payload: bytes) -> bytes:
        self.count += 1
        if self.count == VICTIM and self.fault == "refuses":
            return b"OUT_OF_MEMORY\r\n"
        if not (self.count == VICTIM and self.fault == "loses a job"):
            self.ready.append((self.count, payload))
            self.lock.notify()
        if self.count == VICTIM and self.fault == "doubles an id":
            return b"INSERTED 1\r\n"
        return b"INSERTED %d\r\n" % self.count

    def reserve(self) -> bytes:
        self.lock.wait_for(lambda: self.ready)
        number, payload = self.ready.pop(0)
        if number == VICTIM and self.fault == "doubles a job":
            self.ready.insert(0, (number + 1000, payload))
        if number == VICTIM and self.fault == "spoils a payload":
            payload = payload[:-1] + b"!"
        self.reserved[number] = payload
        return b"RESERVED %d %d\r\n%b\r\n" % (number, len(payload), payload)


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def serving(fake: FakeGearman | FakeBeanstalkd) -> Iterator[int]:
    """The port of a fake."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                fake.serve(self)
            except (OSError, ValueError):
                return  # the generator has seen enough

    with _Listener((HOST, 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()
            thread.join()
