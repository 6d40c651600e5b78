"""The scripts by themselves: whatever servers do, and whenever they die, no id is nowhere or in two places."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear.net.bridge.keys import Keys
from switchgear.net.bridge.scripts import SCRIPTS, Script
from tests.support.redis_server import RedisServer

KEYS = Keys(b"shout")
SERVERS = ("one", "two")
LEASE_MS = 60_000
QUEUES = ("high", "normal", "low", "scheduled")

STEPS = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from(QUEUES)),
    st.tuples(st.just("claim"), st.sampled_from(SERVERS), st.integers(1, 3)),
    st.tuples(st.just("give back"), st.sampled_from(SERVERS), st.integers(1, 8)),
    st.tuples(st.just("finish"), st.integers(1, 8)),
    st.tuples(st.just("renew"), st.sampled_from(SERVERS), st.integers(1, 8)),
    st.tuples(st.just("take over"), st.integers(1, 8)),
    st.tuples(st.just("die"), st.sampled_from(SERVERS)),  # all its leases pass, and somebody notices
)


class Play:
    """What the servers do, and the invariant."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.created: set[str] = set()
        self.finished: set[str] = set()

    def run(self, script: Script, keys: list[bytes], *words: object) -> Any:
        return self.client.eval(script.text, len(keys), *keys, *words)

    @property
    def all_keys(self) -> list[bytes]:
        return [*KEYS.queues.values(), KEYS.claimed, KEYS.holders]

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0].replace(" ", "_"))(*step[1:])

    def queue(self, priority: str) -> None:
        job_id = str(len(self.created) + 1)
        self.created.add(job_id)
        self.client.hset(f"job:shout:{job_id}", mapping={"status": "idle", "input": ""})
        if priority == "scheduled":
            self.client.zadd("queue:shout:scheduled", {job_id: 1})
        else:
            self.client.lpush(f"queue:shout:{priority}", job_id)

    def claim(self, server: str, count: int) -> None:
        answer = self.run(SCRIPTS.claim, self.all_keys, count, LEASE_MS, server)
        assert len(answer) <= 2 * count

    def give_back(self, server: str, job_id: int) -> None:
        self.run(SCRIPTS.give_back, self.all_keys, server, job_id)

    def finish(self, job_id: int) -> None:
        keys = [KEYS.job(b"%d" % job_id), KEYS.lock(b"%d" % job_id), KEYS.claimed, KEYS.holders, *KEYS.queues.values()]
        is_first = self.run(SCRIPTS.finish, keys, job_id, "success", "out", KEYS.channel, 90_000, 10)
        assert bool(is_first) is (str(job_id) in self.created - self.finished)
        if is_first:
            self.finished.add(str(job_id))

    def renew(self, server: str, job_id: int) -> None:
        self.run(SCRIPTS.renew, [KEYS.claimed, KEYS.holders], LEASE_MS, server, job_id)

    def take_over(self, job_id: int) -> None:
        self.run(SCRIPTS.take_over, [KEYS.claimed, KEYS.holders], LEASE_MS, *SERVERS, job_id)

    def die(self, server: str) -> None:
        for job_id, holder in self.client.hgetall(KEYS.holders).items():
            if holder.startswith(server):
                self.client.zadd(KEYS.claimed, {job_id: 1})
        self.run(SCRIPTS.give_back, self.all_keys, "", 100)

    def check(self) -> None:
        client = self.client
        claimed = client.zrange(KEYS.claimed, 0, -1)
        places = [*claimed, *client.zrange("queue:shout:scheduled", 0, -1), *self.finished]
        for priority in QUEUES[:3]:
            places += client.lrange(f"queue:shout:{priority}", 0, -1)
        assert sorted(places) == sorted(self.created)
        assert set(client.hkeys(KEYS.holders)) == set(claimed)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=30))
def test_every_job_is_in_exactly_one_place(shared_server: RedisServer, steps: list[tuple[Any, ...]]) -> None:
    with shared_server.client() as client:
        client.flushall()
        play = Play(client)
        for step in steps:
            play.do(step)
            play.check()


def test_a_pushed_job_is_queued_once(store: Any) -> None:
    for number in ("1", "2"):
        keys = [KEYS.mark(b"H:1"), KEYS.job(number.encode()), b"queue:shout:normal"]
        answer = store.eval(SCRIPTS.push.text, 3, *keys, "H:1", number, "input", KEYS.channel, 100, "", "")
        assert answer == "1"
    assert store.lrange("queue:shout:normal", 0, -1) == ["1"]
    assert store.keys("job:*") == ["job:shout:1"]
    assert 0 < store.ttl(KEYS.mark(b"H:1")) <= 100
