"""The application's flows, against servers without a wire."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from switchgear.client.address import ServerAddress
from switchgear.client.draft.application import MOST_THROWN_AWAY, Application, ApplicationConnection, DraftRequest
from switchgear.client.draft.flow_steps import Flow, WaitStep
from switchgear.client.draft.records import DraftResult, DraftStatus, JobRecord
from switchgear.errors import ClientError, ConfigError, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman_draft.messages import JobType, Packet
from tests.client.draft_network import SimulatedNetwork
from tests.support.draft_wire import ASK, Kind, complete, packet, status

WAIT, HANDLE, THROW_AWAY = JobType


class SimulatedApplication:
    """An application in a network."""

    def __init__(self, servers: int = 1, timeout_seconds: float = 10.0) -> None:
        self.network = SimulatedNetwork(servers)
        self.application = Application(self.network.urls, timeout_seconds, self.network.clock, random.Random(1))

    def submit(self, job_type: JobType = HANDLE, args: bytes = b"x", dupkey: str = "", name: str = "f") -> JobRecord:
        return self.network.perform(self.application.submit(name, args, dupkey, job_type))

    def wait(self, record: JobRecord, seconds: float | None = None) -> DraftResult:
        deadline = None if seconds is None else self.network.now + seconds
        return self.network.perform(self.application.wait(record, deadline, 0.2))

    def complete(self, record: JobRecord) -> DraftResult | None:
        return self.network.perform(self.application.complete(record))

    def recreate_unfinished(self) -> list[tuple[JobRecord, JobRecord]]:
        return self.network.perform(self.application.recreate_unfinished())

    def work(self, port: int, *answers: bytes, name: bytes = b"f") -> None:
        """Somebody takes a task there and says this."""
        self.network.peer(port, "worker").send(packet(Kind.worker_connect, name), ASK, *answers)
        self.network.peer(port, "worker").take_bytes()


def test_a_job_that_is_waited_for() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(WAIT, b"args")
    assert record.handle == ""
    simulated.network.after(3, lambda: simulated.work(1, status(1, 2, 9), status(2, 2, 0), complete(0, b"done")))
    news = []
    while (item := simulated.network.perform(simulated.application.next_status(record, None))) is not None:
        news.append(item)
    assert news == [DraftStatus(1, 2, 9), DraftStatus(2, 2, None)]
    assert record.outcome == (0, b"done")
    assert record.elapsed_seconds == 3
    assert simulated.wait(record) == DraftResult(0, b"done")  # and again
    assert simulated.application.unfinished == []


def test_a_job_that_is_asked_for() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(HANDLE)
    assert record.handle == "H:t:1"
    assert simulated.application.unfinished == [record]
    assert simulated.complete(record) is None
    simulated.work(1, status(1, 3, 20))
    assert simulated.network.perform(simulated.application.status(record)) == (1, 3, 20)
    simulated.network.peer(1, "worker").send(complete(7, b"broken"))
    assert simulated.complete(record) == (7, b"broken")
    assert record.outcome == (7, b"broken")
    assert simulated.application.unfinished == []


def test_a_job_that_is_asked_for_again_and_again_until_it_is_complete() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(HANDLE)
    simulated.network.after(1.1, lambda: simulated.work(1, complete(0, b"done")))
    started = simulated.network.now
    assert simulated.wait(record) == (0, b"done")
    assert simulated.network.now - started == pytest.approx(1.2)


def test_a_job_that_is_thrown_away() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(THROW_AWAY)
    assert record.handle == ""
    assert simulated.application.unfinished == []
    for question in (simulated.complete, simulated.wait):
        with pytest.raises(ClientError, match="no handle"):
            question(record)


@pytest.mark.parametrize("job_type", [WAIT, HANDLE])
def test_waiting_has_an_end(job_type: JobType) -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(job_type)
    with pytest.raises(TimeoutError):
        simulated.wait(record, 2)
    simulated.work(1, complete(0, b"late"))
    assert simulated.wait(record, 2) == (0, b"late")


def test_questions_are_not_held_up_by_a_job_that_is_waited_for() -> None:
    simulated = SimulatedApplication()
    waited = simulated.submit(WAIT, name="slow")
    asked = simulated.submit(HANDLE)
    simulated.work(1, complete(0, b"done"))
    assert simulated.complete(asked) == (0, b"done")
    simulated.work(1, complete(0, b"at last"), name=b"slow")
    assert simulated.wait(waited) == (0, b"at last")


def test_waits_on_one_server_end_in_the_order_of_their_creation() -> None:
    simulated = SimulatedApplication()
    first, second = simulated.submit(WAIT, name="slow"), simulated.submit(WAIT)
    simulated.work(1, complete(0, b"two"))
    with pytest.raises(TimeoutError):
        simulated.wait(second, 1)
    simulated.work(1, complete(0, b"one"), name=b"slow")
    assert simulated.wait(second) == (0, b"two")
    assert simulated.wait(first) == (0, b"one")


def test_the_servers_are_chosen_by_chance() -> None:
    simulated = SimulatedApplication(servers=3)
    ports = Counter(simulated.submit(THROW_AWAY).server.port for _ in range(300))
    assert set(ports) == {1, 2, 3}
    assert min(ports.values()) > 60


def test_a_server_that_is_not_there_is_left_out_and_not_asked_every_time() -> None:
    simulated = SimulatedApplication(servers=3)
    simulated.network.kill(2)
    attempts = []
    connect = simulated.network._connect
    simulated.network._connect = lambda line: (attempts.append(line.address.port), connect(line))[1]  # type: ignore
    ports = {simulated.submit(THROW_AWAY).server.port for _ in range(50)}
    assert ports == {1, 3}
    assert attempts.count(2) == 1
    simulated.network.start(2)
    simulated.network._until(lambda: False, simulated.network.now + 6)
    assert 2 in {simulated.submit(THROW_AWAY).server.port for _ in range(50)}


def test_no_server_is_there() -> None:
    simulated = SimulatedApplication(servers=2)
    simulated.network.kill(1)
    simulated.network.kill(2)
    with pytest.raises(ServerUnreachable, match="Connection refused"):
        simulated.submit()
    simulated.network.start(1)
    assert simulated.submit().server.port == 1  # though it was shunned: there is no better one


def test_a_server_that_takes_no_jobs_is_passed_over() -> None:
    simulated = SimulatedApplication(servers=2)
    simulated.network.harnesses[1].engine.drain()
    assert {simulated.submit().server.port for _ in range(20)} == {2}
    simulated.network.harnesses[2].engine.drain()
    with pytest.raises(ServerRefused, match="REFUSED: server is shutting down"):
        simulated.submit()


def test_an_error_of_ours_is_not_tried_elsewhere() -> None:
    simulated = SimulatedApplication(servers=2)
    with pytest.raises(ServerRefused, match="TOO_LARGE"):
        simulated.submit(name="n" * 100)
    assert len([data for _, data in simulated.network.sent if data[4:5] == b"\4"]) == 1


@pytest.mark.parametrize(("name", "dupkey"), [("näme", ""), ("f", "käy"), ("a\0b", ""), ("f", "a\0b")])
def test_names_and_keys_are_ascii(name: str, dupkey: str) -> None:
    with pytest.raises(ValueError, match="not ASCII"):
        SimulatedApplication().submit(name=name, dupkey=dupkey)


def test_duplicate_keys() -> None:
    simulated = SimulatedApplication()
    first, second = (simulated.submit(WAIT, dupkey="key") for _ in range(2))
    third = simulated.submit(HANDLE, dupkey="key")
    simulated.work(1, complete(0, b"once"))
    assert [simulated.wait(record) for record in (first, second, third)] == [(0, b"once")] * 3


def test_a_server_that_does_not_answer_is_given_up() -> None:
    simulated = SimulatedApplication(timeout_seconds=4)
    simulated.network.silent.add(1)
    with pytest.raises(ServerUnreachable, match="did not answer within 4 s"):
        simulated.submit()
    simulated.network.silent.clear()
    assert simulated.submit().handle == "H:t:1"  # on a new connection


def test_a_server_that_hung_up_long_ago_is_called_again() -> None:
    simulated = SimulatedApplication()
    simulated.submit()
    for talker in list(simulated.network.harnesses[1].talkers.values()):
        talker.stop_sending()
    assert simulated.submit().handle == "H:t:2"


@pytest.mark.parametrize("nonsense", [b"nonsense", packet(Kind.job_assign_res, b"f\0x"), packet(Kind.noop)])
def test_a_server_that_says_something_else(nonsense: bytes) -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(WAIT)
    for line in simulated.application.connections:
        line.receive(nonsense)
    with pytest.raises(ServerUnreachable, match="does not speak the draft"):
        simulated.wait(record)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1"])
def test_an_answer_that_makes_no_sense(body: bytes) -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(WAIT)
    for line in simulated.application.connections:
        line.receive(packet(Kind.job_complete_res, body))
    with pytest.raises(ServerUnreachable, match="does not speak the draft"):
        simulated.wait(record)


def test_errors_that_nobody_asked_for_change_nothing() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(WAIT)
    for line in simulated.application.connections:
        line.receive(packet(Kind.error, b"\x63unheard of"))
    simulated.work(1, complete(0, b"done"))
    assert simulated.wait(record) == (0, b"done")


# --- jobs that have to be created again ---


def test_a_record_is_enough_to_create_a_job_again() -> None:
    simulated = SimulatedApplication()
    old = simulated.submit(HANDLE, b"args", "key")
    simulated.work(1, complete(0, b"once"))
    new = simulated.network.perform(simulated.application.recreate(old))
    assert new.handle == "H:t:2"
    assert (new.name, new.args, new.dupkey, new.job_type) == ("f", b"args", "key", HANDLE)
    assert simulated.application.unfinished == [new]


def test_what_a_lost_server_had_not_finished_is_created_elsewhere() -> None:
    simulated = SimulatedApplication(servers=3)
    records = [simulated.submit(job_type, b"%d" % n) for n in range(15) for job_type in (WAIT, HANDLE)]
    finished = [record for record in records if record.server.port == 2][:4]
    for record in finished:
        simulated.work(2, complete(0, record.args))
    assert [simulated.wait(record) for record in finished] == [(0, record.args) for record in finished]
    lost = [record for record in records if record.server.port == 2 and record not in finished]
    simulated.network.kill(2)
    recreated = simulated.recreate_unfinished()
    assert [old for old, _ in recreated] == lost
    assert {new.server.port for _, new in recreated} == {1, 3}
    assert [new.args for _, new in recreated] == [old.args for old in lost]
    kept = [record for record in records if record not in lost and record not in finished]
    assert set(simulated.application.unfinished) == {*kept, *(new for _, new in recreated)}
    assert simulated.recreate_unfinished() == []


def test_what_was_finished_before_the_loss_and_not_heard_of_is_created_again() -> None:
    simulated = SimulatedApplication(servers=2)
    record = simulated.submit(HANDLE)
    simulated.work(record.server.port, complete(0, b"unheard"))
    simulated.network.kill(record.server.port)
    ((old, new),) = simulated.recreate_unfinished()
    assert old is record
    assert new.server != old.server


def test_a_job_that_its_server_has_finished_is_only_noted() -> None:
    simulated = SimulatedApplication(servers=2)
    record = simulated.submit(HANDLE)
    simulated.work(record.server.port, complete(0, b"done"))
    assert simulated.recreate_unfinished() == []
    assert record.outcome == (0, b"done")


def test_a_server_that_came_back_without_its_jobs() -> None:
    simulated = SimulatedApplication()
    waited, asked = simulated.submit(WAIT), simulated.submit(HANDLE)
    simulated.network.kill(1)
    simulated.network.start(1)
    with pytest.raises(ServerUnreachable):
        simulated.wait(waited)
    assert [old for old, _ in simulated.recreate_unfinished()] == [waited, asked]


def test_a_job_that_cannot_be_created_again_stays_unfinished() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(HANDLE)
    simulated.network.kill(1)
    with pytest.raises(ServerUnreachable):
        simulated.recreate_unfinished()
    assert simulated.application.unfinished == [record]


def test_throw_away_jobs_of_the_last_minute_are_created_again_if_their_server_is_gone() -> None:
    simulated = SimulatedApplication(servers=2)
    old = [simulated.submit(THROW_AWAY, b"old") for _ in range(10)]
    simulated.network.perform(pause(simulated, 61.0))
    records = [simulated.submit(THROW_AWAY, b"%d" % n) for n in range(20)]
    assert simulated.recreate_unfinished() == []
    simulated.network.kill(1)
    recreated = simulated.recreate_unfinished()
    assert [record for record, _ in recreated] == [record for record in records if record.server.port == 1]
    assert {new.server.port for _, new in recreated} == {2}
    assert {record.server.port for record in old} == {1, 2}
    assert simulated.recreate_unfinished() == []


def test_of_very_many_throw_away_jobs_the_newest_are_remembered() -> None:
    simulated = SimulatedApplication(servers=2)
    for _ in range(MOST_THROWN_AWAY + 100):
        simulated.submit(THROW_AWAY)
    simulated.network.kill(1)
    assert len(simulated.recreate_unfinished()) <= MOST_THROWN_AWAY


def pause(simulated: SimulatedApplication, seconds: float) -> Flow[None]:
    yield WaitStep(lambda: False, simulated.network.now + seconds)


def test_a_throw_away_job_that_is_forgotten_is_not_created_again() -> None:
    simulated = SimulatedApplication()
    simulated.application.forget(simulated.submit(THROW_AWAY))
    simulated.network.kill(1)
    assert simulated.recreate_unfinished() == []


def test_a_job_that_is_forgotten_is_not_created_again() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(HANDLE)
    simulated.application.forget(record)
    simulated.network.kill(1)
    assert simulated.recreate_unfinished() == []


def test_a_record_of_somebody_else_cannot_be_waited_for_without_asking() -> None:
    simulated = SimulatedApplication()
    record = simulated.submit(WAIT)
    other = Application(simulated.network.urls, 10, simulated.network.clock, random.Random(2))
    flow: Flow[DraftResult] = other.wait(record, None, 0.1)
    with pytest.raises(ClientError, match="not a job of this client"):
        simulated.network.perform(flow)


def test_an_application_needs_a_server() -> None:
    with pytest.raises(ValueError, match="needs a server"):
        Application([], 10, lambda: 0.0, random.Random())
    with pytest.raises(ConfigError, match="gearman://HOST:PORT"):
        Application("no url at all", 10, lambda: 0.0, random.Random())


def test_an_error_packet_without_a_code_fails_the_request_with_its_connection() -> None:
    line = ApplicationConnection(ServerAddress("h", 1))
    line.opening()
    line.opened()
    question = DraftRequest(Packet.JOB_STATUS_REQ)
    line.requests.append(question)
    line.receive(packet(Kind.error, b""))
    assert not line.is_open
    with pytest.raises(ServerUnreachable, match="does not speak the draft"):
        question.result()
