"""Real dwork servers: plain ZeroMQ sockets talk to them, and they are killed in the middle of a graph."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType
from tests.protocols.dwork.harness import OK, DworkHarness, complete, create, leave, names, steal, task, transfer
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

CRASHES = 4
WORKERS = 20


@contextmanager
def running_dwork(*args: str, store: str = "memory:") -> Iterator[tuple[Server, str]]:
    """A server, and where its dwork listener is."""
    listener = "dwork://127.0.0.1:0?lease=0"
    never_wait = ("--drain-timeout", "0.05s")
    with running_switchgear("--listen", listener, *never_wait, *args, store=store) as server:
        found = re.search(r"dwork://(127\.0\.0\.1:\d+)", server.output())
        assert found, server.output()
        yield server, f"tcp://{found[1]}"


class Talker:
    """A socket that is not waited for longer than a test may take."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str) -> None:
        self.socket = context.socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RCVTIMEO, int(DEADLINE_SECONDS * 1000))
        self.socket.connect(address)

    def ask_frames(self, *frames: bytes) -> list[bytes]:
        self.socket.send_multipart(frames)
        return self.socket.recv_multipart()

    def ask(self, query: Query) -> Query:
        [answer] = self.ask_frames(encode(query))
        return decode_reply(answer)


Talk = Callable[[int, str], Talker]


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Opens sockets, and closes them in the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    talkers: list[Talker] = []

    def open_socket(kind: int, address: str) -> Talker:
        talkers.append(Talker(context, kind, address))
        return talkers[-1]

    yield open_socket
    for talker in talkers:
        talker.socket.close(0)
    context.destroy(0)


def test_a_req_socket_gets_the_bytes_of_the_original(talk: Talk) -> None:
    with running_dwork() as (_, address):
        peer = talk(zmq.REQ, address)
        assert peer.ask_frames(b"\x08\x01\x32\x02w1") == [b"\x08\x07"]
        assert peer.ask_frames(b"\x08\x00\x12\x08\x0a\x01a\x12\x03cli") == [b"\x08\x06"]
        [stolen] = peer.ask_frames(b"\x08\x01\x32\x02w1")
        assert stolen.startswith(b"\x08\x03\x12")
        assert peer.ask_frames(b"\x08\x02\x12\x08\x0a\x01a\x12\x03cli\x32\x02w1") == [b"\x08\x06"]
        assert peer.ask_frames(b"\x08\x06") == [b"\x08\x06\x1a\x1edhub: 0 active tasks, 0 ready. \x00"]


def command(*words: str) -> str:
    """What a command of ours prints."""
    program = [sys.executable, "-m", "switchgear", *words]
    return subprocess.run(program, capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS).stdout


def test_operators_see_the_names_of_tasks_and_what_workers_return_with_them(talk: Talk, tmp_path: Path) -> None:
    # TaskMsg: name, origin, and in its log Started and Done, in microseconds since the epoch.
    time = b"\xc0\x84\xe6\xb0\x84\xaf\x82\x03"
    log = b"".join(b"\x32\x0b\x08%c\x10%b" % (state, time) for state in (5, 6))
    returned = b"\x0a\x08resize 1\x12\x06node17" + log
    complete_it = b"\x08\x02\x12%c%b\x32\x02w1" % (len(returned), returned)
    store = tmp_path / "jobs.db"
    with running_dwork(store=f"sqlite:{store}") as (server, address):
        peer = talk(zmq.REQ, address)
        assert peer.ask_frames(b"\x08\x00\x12\x0f\x0a\x08resize 1\x12\x03cli") == [b"\x08\x06"]
        assert peer.ask_frames(b"\x08\x01\x32\x02w1")[0].startswith(b"\x08\x03\x12")
        assert peer.ask_frames(complete_it) == [b"\x08\x06"]
        where = ("--server", f"gearman://127.0.0.1:{server.port}")
        listed = command("jobs", *where)
        assert listed.split()[:2] == ["HANDLE", "NAME"]
        assert "resize 1" in listed
        handle = listed.splitlines()[1].split()[0]
        returned_line = r"message +origin node17, Started 20\d\d-\S+Z, Done 20\d\d-\S+Z"
        assert re.search(returned_line, command("job", handle, *where))
    with running_dwork(store=f"sqlite:{store}") as (server, _):
        where = ("--server", f"gearman://127.0.0.1:{server.port}")
        assert re.search(returned_line, command("job", handle, *where))
    logged = ("log", "--url", f"sqlite:{tmp_path / 'jobs-log.db'}")
    assert "resize 1" in command(*logged)
    assert "origin node17, Started" in command(*logged)
    [run] = json.loads(command(*logged, "--json", "--key", "resize 1"))["runs"]
    assert run["result"].startswith("origin node17, Started 20")


def test_what_brought_the_original_down_is_answered(talk: Talk) -> None:
    with running_dwork() as (server, address):
        peer = talk(zmq.REQ, address)
        for frames in ([b"\x08\x06", b"tail"], [b""], [b"\xff\xfe"], [b"\x08\x00\x12\x7f"]):
            assert peer.ask_frames(*frames)[0].startswith(b"\x08\x08")
        assert peer.ask(create("a", "b after a")) == OK
        assert names(peer.ask(complete("w", "b"))) == ["b"]
        assert server.is_running()


def test_a_dealer_socket_may_tag_its_requests(talk: Talk) -> None:
    with running_dwork() as (_, address):
        peer = talk(zmq.DEALER, address)
        peer.socket.send(encode(Query(QueryType.OK)))  # without an empty frame: dropped
        for number in range(100):
            peer.socket.send_multipart([b"%d" % number, b"", encode(create(f"t{number}"))])
        assert [peer.socket.recv_multipart() for _ in range(100)] == [
            [b"%d" % number, b"", b"\x08\x06"] for number in range(100)
        ]


def test_a_steal_may_wait(talk: Talk) -> None:
    with running_dwork() as (_, address):
        worker, creator = talk(zmq.REQ, address), talk(zmq.REQ, address)
        assert worker.ask(steal("w", wait_ms=50)) == Query(QueryType.EXIT)
        worker.socket.send(encode(steal("w", wait_ms=60_000)))
        assert creator.ask(create("a")) == OK
        assert names(decode_reply(worker.socket.recv())) == ["a"]


def test_a_silent_worker_s_tasks_go_to_others(talk: Talk) -> None:
    with running_dwork() as (_, address):
        peer = talk(zmq.REQ, address)
        peer.ask(create("a"))
        assert names(peer.ask(steal("silent", lease_ms=100))) == ["a"]
        assert names(peer.ask(steal("other", wait_ms=10_000))) == ["a"]


# --- kill -9 ---


def tasks_of(peer: Talker) -> list[tuple[bytes, int | None, tuple[int, ...]]]:
    """Everything that the server knows of its tasks, as far as a restart must not change it."""
    found = []
    cursor: int | None = 0
    while cursor is not None:
        page = peer.ask(Query(QueryType.LIST, n=100, cursor=cursor))
        found += [(task.name, task.state, tuple(task.after)) for task in page.tasks]
        cursor = page.cursor
    return found


def test_the_graph_comes_back_exactly_and_in_order(talk: Talk, tmp_path: Path) -> None:
    """The same is done to a server in this process, which is restarted too; then both hand out the same tasks."""
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    twin = DworkHarness(keeps=True)
    with running_dwork(store=store) as (server, address):
        peer = talk(zmq.REQ, address)
        for query in story(random.Random(5)):
            answer = peer.ask(query)
            assert (answer.type, names(answer)) == ((expected := twin.ask(query)).type, names(expected))
        assert names(peer.ask(steal("w", 7))) == names(twin.ask(steal("w", 7)))
        server.kill()
    twin.restart()
    with running_dwork(store=store) as (_, address):
        peer = talk(zmq.REQ, address)
        expected_tasks = [
            (task.name, task.state, tuple(task.after)) for task in twin.ask(Query(QueryType.LIST, n=1000)).tasks
        ]
        assert [task for task in tasks_of(peer) if task[1] != 4] == [task for task in expected_tasks if task[1] != 4]
        handed_out = 0
        while got := names(peer.ask(steal("v", 5))):
            assert got == names(twin.ask(steal("v", 5)))
            handed_out += len(got)
            assert peer.ask(complete("v", *got)) == twin.ask(complete("v", *got)) == OK
        assert handed_out > 100
        assert peer.ask(steal("v")) == Query(QueryType.EXIT)


def story(chance: random.Random) -> Iterator[Query]:
    """A graph of 300 tasks, of which some are done, some given back, and some lost with their worker."""
    lines = []
    for number in range(300):
        before = chance.sample(range(max(0, number - 40), number), min(number, chance.choice((0, 0, 1, 3))))
        after = " ".join(f"t{other}" for other in before)
        lines.append(f"t{number} after {after}" if after else f"t{number}")
    for start in range(0, 300, 50):
        yield create(*lines[start : start + 50])
    roots = [line for line in lines if "after" not in line]
    yield steal("w", 20)
    yield complete("w", *roots[:8])
    yield transfer("w", *roots[8:12])
    yield steal("u", 15)
    yield leave("w")
    yield steal("v", 3)
    yield leave("v")
    yield complete("u", *roots[12:15])


class Load:
    """Workers behind one socket that steal and complete without end, and note what they were told."""

    def __init__(self, talk: Talk, address: str, completed: set[str]) -> None:
        self.peer = talk(zmq.DEALER, address)
        self.completed = completed  # acknowledged ones, over all crashes
        self.sent: dict[bytes, Query] = {}

    def send(self, worker: str, query: Query) -> None:
        self.sent[worker.encode()] = query
        self.peer.socket.send_multipart([worker.encode(), b"", encode(query)])

    def start(self) -> None:
        for number in range(WORKERS):
            self.send(f"w{number}", steal(f"w{number}", 2))

    def step(self) -> bool:
        """One answer; False when this worker has nothing more to do."""
        worker, _, payload = self.peer.socket.recv_multipart()
        question, answer = self.sent[worker], decode_reply(payload)
        if question.type == QueryType.COMPLETE:
            assert answer == OK
            self.completed.update(names(question))
        elif answer.type == QueryType.TRANSFER:
            for name in names(answer):
                self.check_may_start(name)
            self.send(worker.decode(), complete(worker.decode(), *names(answer)))
            return True
        elif answer.type == QueryType.EXIT:
            return False
        self.send(worker.decode(), steal(worker.decode(), 2))
        return True

    def check_may_start(self, name: str) -> None:
        assert name not in self.completed, f"{name} was acknowledged as completed, and is handed out again"
        layer, place = map(int, name.split("-"))
        before = [f"{layer - 1}-{(place + step) % 30}" for step in range(3)] if layer else []
        told = {task for query in self.sent.values() if query.type == QueryType.COMPLETE for task in names(query)}
        assert set(before) <= self.completed | told | self.perhaps_completed

    perhaps_completed: frozenset[str] = frozenset()  # sent before a crash, and never answered


def test_what_was_acknowledged_survives_every_crash(talk: Talk, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    chance = random.Random(11)
    completed: set[str] = set()
    perhaps: frozenset[str] = frozenset()
    settings = ("--set", "engine.attempts=0")
    everything = [
        f"{layer}-{place} after " + " ".join(f"{layer - 1}-{(place + step) % 30}" for step in range(3))
        for layer in range(20)
        for place in range(30)
    ]
    for crash in range(CRASHES):
        with running_dwork(*settings, store=store) as (server, address):
            if not crash:
                assert talk(zmq.REQ, address).ask(create(*everything)) == OK
            load = Load(talk, address, completed)
            load.perhaps_completed = perhaps
            load.start()
            for _ in range(chance.randrange(40, 120)):
                load.step()
            server.kill()
            unanswered = [query for query in load.sent.values() if query.type == QueryType.COMPLETE]
            perhaps |= frozenset(name for query in unanswered for name in names(query))
    with running_dwork(*settings, store=store) as (_, address):
        load = Load(talk, address, completed)
        load.perhaps_completed = perhaps
        load.start()
        working = WORKERS
        while working:
            working -= not load.step()
    assert completed | perhaps == {line.split()[0] for line in everything}
    assert len(completed) > 300


def test_what_failed_before_a_restart_counts_as_failed_however_many_failed_since(tmp_path: Path, talk: Talk) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_dwork(store=store) as (server, address):
        peer = talk(zmq.REQ, address)
        for start in range(0, 5_000, 1_000):
            tasks = [f"t{number}" for number in range(start, start + 1_000)]
            assert peer.ask(create(*tasks)) == OK
            assert len(names(peer.ask(steal("w", 1_000)))) == 1_000
            failures = [task(name, error=b"so it is") for name in tasks]
            assert peer.ask(Query(QueryType.COMPLETE, failures, location=b"w")) == OK
        server.kill()
    with running_dwork(store=store) as (server, address):
        peer = talk(zmq.REQ, address)
        assert peer.ask(create("first after t0", "last after t4999", "free after nobody")) == OK
        assert names(peer.ask(steal("w", 10))) == ["free"]
        assert peer.ask(create("t0")) == OK  # it is tried again
        assert names(peer.ask(steal("w", 10))) == ["t0"]
        assert peer.ask(complete("w", "t0", "free")) == OK
        assert names(peer.ask(steal("w", 10))) == ["first"]
