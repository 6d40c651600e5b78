"""What every store does, and what every durable store does besides: see `stores.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from switchgear.config.setting_types import StoreUrl
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Function,
    JobState,
    PlainJob,
)
from switchgear.storage.base import LONGEST_SEARCHED_BYTES, JobQuery, Store
from tests.storage.stores import ALL, Durable, parameters
from tests.storage.support import (
    HOUR_US,
    NOW_US,
    Result,
    close,
    commit,
    count_jobs,
    facts,
    find,
    finish,
    finished_job,
    function,
    get,
    ids,
    load,
    load_apart,
    loaded,
    new_job,
    other_copy,
    plain_portions,
    read_payloads,
    read_states,
    retry,
    run,
    search_bound,
)


@pytest.fixture(params=parameters(ALL))
def store(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[Store]:
    store = ALL[request.param](place(request.param))
    store.open()
    yield store
    close(store)


class TestEveryStore:
    def test_a_new_one_is_empty(self, store: Store) -> None:
        snapshot = loaded(store)
        assert (snapshot.next_job_id, snapshot.jobs, snapshot.unsuccessful) == (1, [], {})
        assert get(store, 1) is None
        assert find(store, JobQuery()) == []
        assert read_payloads(store, [1]) == {}

    def test_a_commit_of_nothing_is_fine(self, store: Store) -> None:
        assert list(run(store.commit())) == []

    def test_says_what_it_is(self, store: Store) -> None:
        assert (store.url == "memory:") is not store.durable
        assert StoreUrl().read(store.url) == store.url

    def test_finished_jobs_are_the_job_log(self, store: Store) -> None:
        job = finished_job(7, result=b"small", moves=[7, NOW_US, 8, NOW_US + 5])
        assert list(commit(store, [job])) == []
        found = get(store, 7)
        assert found is not None
        assert facts(found) == facts(job)
        assert get(store, 8) is None
        assert read_payloads(store, [7, 8]) == {7: b"payload"}

    def test_states_of_many(self, store: Store) -> None:
        commit(store, [finished_job(1), finished_job(2, state=FAILED), finished_job(9, state=CANCELLED)])
        assert read_states(store, []) == {}
        assert read_states(store, [2, 1, 3, 2, 9]) == {1: DONE, 2: FAILED, 9: CANCELLED}

    def test_a_result_that_came_in_parts_is_whole_in_the_log(self, store: Store) -> None:
        commit(store, [finished_job(1, chunks=[b"first ", b"second "], result=b"last")])
        found = get(store, 1)
        assert found is not None
        assert found.whole_result == b"first second last"

    def test_a_job_that_is_retried_and_finishes_again_is_listed_once(self, store: Store) -> None:
        job = finished_job(1, state=FAILED)
        commit(store, [job])
        commit(store, [retry(job)])
        commit(store, [finish(job)])
        found = find(store, JobQuery())
        assert [(job.id, job.state) for job in found] == [(1, DONE)]

    def test_unstaged_jobs_are_forgotten(self, store: Store) -> None:
        first, second = finished_job(1), finished_job(2)
        store.stage([first, second])
        store.unstage([first])
        run(store.commit())
        assert ids(find(store, JobQuery())) == [2]

    def test_unstaging_what_was_never_staged_is_fine(self, store: Store) -> None:
        store.unstage([finished_job(1)])
        assert find(store, JobQuery()) == []


class TestFinding:
    @pytest.fixture
    def log(self, store: Store) -> Store:
        """Ten jobs: even ones resized, odd ones mailed; 3 and 6 failed, 9 was cancelled."""
        resize, mail = function(b"resize"), function(b"mail")
        jobs = [finished_job(number, mail if number % 2 else resize) for number in range(1, 11)]
        for job in jobs:
            job.unique = b"unique %d" % (job.id // 2)
            job.name = b"name %d" % job.id if job.id > 5 else b""
        jobs[2].state = jobs[5].state = FAILED
        jobs[8].state = CANCELLED
        jobs[2].moves = [Cause.TAKEN, NOW_US, Cause.EXHAUSTED, NOW_US]
        jobs[5].moves = [Cause.TAKEN, NOW_US, Cause.ENDED_BADLY, NOW_US]
        jobs[2].error, jobs[5].error, jobs[8].error = b"worker lost\xff", b"OSError: disk\0full", None
        for job, key in ((jobs[0], b"red"), (jobs[1], b"green"), (jobs[4], b"red"), (jobs[6], b"redder")):
            job.has_details = True
            job.key = key
            job.schedule = b"red"
        jobs[7].payload = b"x" * 2_000 + b"needle"
        jobs[3].payload = b"needle" + b"x" * LONGEST_SEARCHED_BYTES
        jobs[1].payload = b"a needle\xff\0."
        commit(store, jobs)
        return store

    def test_newest_first(self, log: Store) -> None:
        assert ids(find(log, JobQuery())) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (JobQuery(function=b"mail"), [9, 7, 5, 3, 1]),
            (JobQuery(function=b"unknown"), []),
            (JobQuery(states=frozenset({DONE})), [10, 8, 7, 5, 4, 2, 1]),
            (JobQuery(states=frozenset({FAILED})), [6, 3]),
            (JobQuery(states=frozenset({FAILED, CANCELLED, EXPIRED})), [9, 6, 3]),
            (JobQuery(states=frozenset({DONE, CANCELLED})), [10, 9, 8, 7, 5, 4, 2, 1]),
            (JobQuery(states=frozenset({RUNNING})), []),
            (JobQuery(unique=b"unique 3"), [7, 6]),
            (JobQuery(unique=b"unique"), []),
            (JobQuery(name=b"name 8"), [8]),
            (JobQuery(name=b"name 8", states=frozenset({FAILED})), []),
            (JobQuery(name=b""), [5, 4, 3, 2, 1]),
            (JobQuery(since_us=NOW_US + 8), [10, 9, 8]),
            (JobQuery(until_us=NOW_US + 3), [2, 1]),
            (JobQuery(since_us=NOW_US + 3, until_us=NOW_US + 6), [5, 4, 3]),
            (JobQuery(function=b"mail", states=frozenset({FAILED}), before_id=9), [3]),
            (JobQuery(limit=0), []),
            (JobQuery(dead=True), [3]),
            (JobQuery(dead=True, states=frozenset({FAILED, CANCELLED})), [3]),
            (JobQuery(dead=True, before_id=3), []),
            (JobQuery(dead=True, function=b"resize"), []),
            (JobQuery(dead=True, name=b""), [3]),
            (JobQuery(error_contains=b"lost"), [3]),
            (JobQuery(error_contains=b"\xff"), [3]),
            (JobQuery(error_contains=b"k\0f"), [6]),
            (JobQuery(error_contains=b"o", states=frozenset({FAILED})), [6, 3]),
            (JobQuery(error_contains=b"OS", dead=True), []),
            (JobQuery(error_contains=b"%"), []),
            (JobQuery(key=b"red"), [5, 1]),
            (JobQuery(key=b"green"), [2]),
            (JobQuery(key=b"re"), []),
            (JobQuery(key=b"", from_id=6), [10, 9, 8, 6]),
            (JobQuery(contains=b"needle"), [8, 2]),  # not in one that is too long
            (JobQuery(contains=b"needle", states=frozenset({FAILED})), []),
            (JobQuery(contains=b"needle", before_id=8, limit=1), [2]),
            (JobQuery(contains=b"\xff\0."), [2]),
            (JobQuery(contains=b"ue 3"), [7, 6]),
            (JobQuery(contains=b"me 8"), [8]),
            (JobQuery(contains=b"disk"), [6]),
            (JobQuery(contains=b"%"), []),
            (JobQuery(from_id=9), [10, 9]),
            (JobQuery(from_id=4, before_id=6), [5, 4]),
        ],
    )
    def test_by(self, log: Store, query: JobQuery, expected: list[int]) -> None:
        assert ids(find(log, query)) == expected

    def test_how_far_a_search_gets(self, durable: Durable) -> None:
        failed = [finished_job(number, state=FAILED if number % 2 else DONE) for number in range(1, 11)]
        commit(durable.store, failed)
        bounds = [search_bound(durable.store, before_id, 2) for before_id in (0, 8, 5, 4, 2)]
        assert bounds == [7, 5, 1, 1, 0]
        assert search_bound(durable.store, 0, 100) == 0
        assert search_bound(durable.store, 0, 2, frozenset()) == 9
        assert search_bound(durable.store, 9, 2, frozenset({FAILED, DONE})) == 7

    def test_how_many_there_are(self, durable: Durable) -> None:
        assert count_jobs(durable.store) == 0
        finished = [finished_job(number) for number in range(1, 4)]
        waiting = [new_job(number) for number in range(4, 9)]
        commit(durable.store, [*finished, *waiting])
        assert count_jobs(durable.store) == 8
        assert count_jobs(durable.store, only_unfinished=True) == 5
        snapshot = load_apart(durable.store, function)
        portions = plain_portions(snapshot)
        assert durable.store.jobs_read() == len(snapshot.jobs) + sum(map(len, portions)) == 5

    def test_page_by_page(self, log: Store) -> None:
        pages = []
        before_id = 0
        while page := find(log, JobQuery(before_id=before_id, limit=4)):
            pages.append(ids(page))
            before_id = page[-1].id
        assert pages == [[10, 9, 8, 7], [6, 5, 4, 3], [2, 1]]

    def test_pages_stay_apart_while_new_jobs_come(self, log: Store) -> None:
        first = find(log, JobQuery(limit=5))
        commit(log, [finished_job(11)])
        assert ids(find(log, JobQuery(before_id=first[-1].id, limit=5))) == [5, 4, 3, 2, 1]


class TestDropping:
    def left(self, store: Store) -> list[int]:
        return sorted(ids(find(store, JobQuery(limit=1000))))

    def test_by_age(self, store: Store) -> None:
        commit(store, [finished_job(number) for number in range(1, 7)])
        assert run(store.drop_finished(NOW_US + 4 * HOUR_US, 1000)) == 3
        assert self.left(store) == [4, 5, 6]

    def test_by_count_the_first_finished_go_first(self, store: Store) -> None:
        jobs = [finished_job(number) for number in range(1, 7)]
        jobs[0].finished_us = NOW_US + 100 * HOUR_US
        commit(store, sorted(jobs, key=lambda job: job.finished_us))
        assert run(store.drop_finished(0, 2)) == 4
        assert self.left(store) == [1, 6]

    def test_whichever_of_both_is_more(self, store: Store) -> None:
        commit(store, [finished_job(number) for number in range(1, 7)])
        assert run(store.drop_finished(NOW_US + 2 * HOUR_US, 4)) == 2
        assert run(store.drop_finished(NOW_US + 5 * HOUR_US, 4)) == 2
        assert self.left(store) == [5, 6]

    def test_all(self, store: Store) -> None:
        commit(store, [finished_job(number) for number in range(1, 7)])
        assert run(store.drop_finished(0, 0)) == 6
        assert self.left(store) == []
        assert run(store.drop_finished(0, 0)) == 0

    def test_nothing(self, store: Store) -> None:
        commit(store, [finished_job(1)])
        assert run(store.drop_finished(0, 1)) == 0
        assert self.left(store) == [1]

    def test_those_that_others_wait_for_stay(self, store: Store) -> None:
        commit(store, [finished_job(number, state=FAILED) for number in range(1, 7)])
        assert run(store.drop_finished(NOW_US + 4 * HOUR_US, 1, lambda: frozenset({2, 3, 99}))) == 3
        assert self.left(store) == [2, 3, 6]

    def test_a_job_with_a_time_of_its_own_goes_when_that_is_over(self, store: Store) -> None:
        own = {2: HOUR_US, 3: 10 * HOUR_US, 5: 1}
        jobs = [
            finished_job(number, retention_us=own.get(number, -1), has_details=number in own) for number in range(1, 7)
        ]
        commit(store, jobs)
        now_us = NOW_US + 6 * HOUR_US
        assert run(store.drop_finished(NOW_US + 5 * HOUR_US, 1000, now_us=now_us)) == 4
        assert self.left(store) == [3, 6]
        assert run(store.drop_finished(NOW_US + 5 * HOUR_US, 1000, now_us=NOW_US + 13 * HOUR_US - 1)) == 0
        assert run(store.drop_finished(NOW_US + 5 * HOUR_US, 1000, now_us=NOW_US + 13 * HOUR_US)) == 1
        assert self.left(store) == [6]

    def test_it_is_not_counted_among_the_others(self, store: Store) -> None:
        jobs = [finished_job(number, retention_us=99 * HOUR_US if number < 4 else -1) for number in range(1, 7)]
        for job in jobs:
            job.has_details = True
        commit(store, jobs)
        assert run(store.drop_finished(0, 2, now_us=NOW_US + 7 * HOUR_US)) == 1
        assert self.left(store) == [1, 2, 3, 5, 6]

    def test_others_wait_for_it_all_the_same(self, store: Store) -> None:
        commit(store, [finished_job(1, state=FAILED, retention_us=1, has_details=True)])
        assert run(store.drop_finished(0, 0, lambda: frozenset({1}), now_us=NOW_US * 2)) == 0
        assert self.left(store) == [1]

    def test_a_job_that_holds_its_key_stays(self, store: Store) -> None:
        until_us = NOW_US + 50 * HOUR_US
        for number, retention_us in ((1, -1), (2, 0), (3, HOUR_US)):
            held = finished_job(number, unique=b"%d" % number, unique_until_us=until_us, retention_us=retention_us)
            held.has_details = True
            commit(store, [held])
        assert run(store.drop_finished(until_us, 0, now_us=until_us - 1)) == 0
        assert self.left(store) == [1, 2, 3]
        assert run(store.drop_finished(until_us, 0, now_us=until_us)) == 3

    def test_one_that_fails_when_these_are_named_is_too_young(self, store: Store) -> None:
        commit(store, [finished_job(number, state=FAILED) for number in range(1, 7)])

        def spare() -> frozenset[int]:
            store.stage([finished_job(7, state=FAILED)])
            return frozenset({2})

        assert run(store.drop_finished(0, 0, spare)) == 5
        run(store.commit())
        assert self.left(store) == [2, 7]

    def test_more_than_fit_into_one_bite(self, store: Store) -> None:
        of = function()
        jobs = [finished_job(number, of, state=FAILED) for number in range(1, 8_001)]
        commit(store, jobs)
        assert run(store.drop_finished(0, 100)) == 7_900
        assert len(self.left(store)) == 100


class TestEveryDurableStore:
    def test_unfinished_jobs_come_back_in_order(self, durable: Durable) -> None:
        states = {5: READY, 2: SCHEDULED, 9: WAITING, 4: RUNNING}
        jobs = [new_job(job_id, state=state) for job_id, state in states.items()]
        commit(durable.store, [*jobs, finished_job(7)])
        snapshot = loaded(durable.reopen())
        assert [facts(job) for job in snapshot.jobs] == [facts(job) for job in sorted(jobs, key=lambda job: job.id)]
        assert all(job.kept for job in snapshot.jobs)

    def test_jobs_of_one_function_share_it(self, durable: Durable) -> None:
        commit(durable.store, [new_job(1), new_job(2), new_job(3, function(b"mail"))])
        first, second, third = loaded(durable.reopen()).jobs
        assert first.function is second.function
        assert third.function.name == b"mail"

    def test_what_was_only_staged_is_lost(self, durable: Durable) -> None:
        durable.store.stage([new_job(1)])
        assert loaded(durable.reopen()).jobs == []

    def test_staging_takes_a_snapshot(self, durable: Durable) -> None:
        job = new_job(1, attempts=1)
        durable.store.stage([job])
        job.attempts = 2
        run(durable.store.commit())
        assert loaded(durable.reopen()).jobs[0].attempts == 1

    def test_the_last_of_several_changes_counts(self, durable: Durable) -> None:
        job = new_job(1)
        durable.store.stage([job])
        durable.store.stage([finish(job)])
        run(durable.store.commit())
        assert [found.state for found in find(durable.store, JobQuery())] == [DONE]

    def test_a_finished_job_is_not_loaded(self, durable: Durable) -> None:
        job = new_job(1)
        commit(durable.store, [job])
        commit(durable.store, [finish(job)])
        assert loaded(durable.reopen()).jobs == []
        assert run(durable.store.drop_finished(0, 0)) == 1

    def test_a_retried_job_is_loaded_and_not_dropped(self, durable: Durable) -> None:
        job = finished_job(1, state=FAILED)
        commit(durable.store, [job])
        commit(durable.store, [retry(job)])
        assert run(durable.store.drop_finished(NOW_US * 2, 0)) == 0
        snapshot = loaded(durable.reopen())
        assert ids(snapshot.jobs) == [1]
        assert snapshot.unsuccessful == {}

    def test_unfinished_jobs_are_never_dropped(self, durable: Durable) -> None:
        commit(durable.store, [new_job(1), finished_job(2)])
        assert run(durable.store.drop_finished(NOW_US * 2, 0)) == 1
        assert ids(loaded(durable.reopen()).jobs) == [1]

    def test_the_job_log_survives_a_restart(self, durable: Durable) -> None:
        job = finished_job(3, state=FAILED, result_code=9, error=b"no such image", name=b"thumbs", unique=b"u")
        commit(durable.store, [job])
        store = durable.reopen()
        found = get(store, 3)
        assert found is not None
        assert facts(found) == facts(job)
        assert ids(find(store, JobQuery(name=b"thumbs", unique=b"u", function=b"resize"))) == [3]

    def test_failures_are_remembered_by_id(self, durable: Durable) -> None:
        states = {3: FAILED, 1: CANCELLED, 2: DONE, 8: EXPIRED}
        commit(durable.store, [finished_job(job_id, state=state) for job_id, state in states.items()])
        unsuccessful = loaded(durable.reopen()).unsuccessful
        assert list(unsuccessful.items()) == [(1, CANCELLED), (3, FAILED), (8, EXPIRED)]
        assert all(isinstance(state, JobState) for state in unsuccessful.values())

    def test_those_that_hold_their_key_are_loaded(self, durable: Durable) -> None:
        of = function()
        ended = [finished_job(number, of, unique=b"%d" % number, has_details=True) for number in range(1, 5)]
        for job, seconds in zip(ended, (0, 1, 5, 9)):
            job.unique_until_us = NOW_US + seconds * 1_000_000 if seconds else 0
        unfinished = new_job(5, of, unique=b"5", unique_until_us=NOW_US + 9_000_000, has_details=True)
        commit(durable.store, [*ended, unfinished])
        functions: dict[bytes, Function] = {}
        snapshot = load(durable.reopen(), lambda name: functions.setdefault(name, Function(name)), NOW_US + 1_000_000)
        assert ids(snapshot.held) == [3, 4]
        assert [facts(job) | {"payload": None} for job in snapshot.held] == [
            facts(job) | {"payload": None} for job in ended[2:]
        ]
        assert [job.payload for job in snapshot.held] == [None, None]
        assert snapshot.held[0].function is functions[b"resize"]
        assert ids(snapshot.jobs) == [5]
        assert snapshot.jobs[0].unique_until_us == unfinished.unique_until_us

    def test_a_key_that_is_held_no_more(self, durable: Durable) -> None:
        job = finished_job(1, unique=b"k", unique_until_us=NOW_US + 9_000_000, has_details=True)
        commit(durable.store, [job])
        job.unique_until_us = 0
        job.payload = None
        commit(durable.store, [job])
        assert loaded(durable.reopen()).held == []
        assert read_payloads(durable.store, [1]) == {1: b"payload"}

    def test_what_was_said_of_a_failure(self, durable: Durable) -> None:
        """Nothing, and not a word, are different answers."""
        commit(durable.store, [finished_job(1, error=None), finished_job(2, error=b"")])
        assert [job.error for job in find(durable.store, JobQuery())] == [b"", None]

    def test_parts_of_a_result_are_lost_with_their_attempt(self, durable: Durable) -> None:
        commit(durable.store, [new_job(1, state=RUNNING, chunks=[b"half"])])
        assert loaded(durable.reopen()).jobs[0].whole_result == b""

    def test_ids_are_never_given_twice(self, durable: Durable) -> None:
        commit(durable.store, [new_job(41)])
        assert loaded(durable.reopen()).next_job_id == 42
        durable.store.stage([], [], 1000)
        run(durable.store.commit())
        assert loaded(durable.reopen()).next_job_id == 1000
        commit(durable.store, [finished_job(2000)])
        assert loaded(durable.reopen()).next_job_id == 2001
        run(durable.store.drop_finished(0, 0))
        durable.store.stage([], [], 500)
        run(durable.store.commit())
        assert loaded(durable.reopen()).next_job_id == 1000

    def test_settings_of_functions_come_back(self, durable: Durable) -> None:
        paused, limited = function(b"paused"), function(b"limited")
        paused.paused = True
        limited.limits = [0, 20, 10]
        commit(durable.store, [new_job(1, paused)], [paused, limited])
        limited.limits = [0, 30, 10]
        commit(durable.store, [new_job(2, limited)], [limited])
        functions: dict[bytes, Function] = {}
        load(durable.reopen(), lambda name: functions.setdefault(name, Function(name)))
        assert (functions[b"paused"].paused, functions[b"paused"].limits) == (True, [0, 0, 0])
        assert (functions[b"limited"].paused, functions[b"limited"].limits) == (False, [0, 30, 10])

    def test_settings_that_nobody_made_are_left_to_the_configuration(self, durable: Durable) -> None:
        commit(durable.store, [new_job(1), finished_job(2, function(b"over"))])
        asked: dict[bytes, Function] = {}

        def function_named(name: bytes) -> Function:
            asked[name] = function(name)
            asked[name].limits = [7, 7, 7]
            return asked[name]

        load(durable.reopen(), function_named)
        assert {name: known.limits for name, known in asked.items()} == {b"resize": [7, 7, 7]}

    def test_a_function_without_jobs_or_settings_stays_forgotten(self, durable: Durable) -> None:
        commit(durable.store, [finished_job(1)])
        load(durable.reopen(), unexpected_function)


def unexpected_function(name: bytes) -> Function:
    raise AssertionError(f"nobody needs function {name!r}")


class TestPayloadsOfADurableStore:
    LONG = bytes(range(256)) * 1000

    @pytest.mark.parametrize("payload", [b"", b"short", LONG])
    def test_a_change_leaves_the_payload_alone(self, durable: Durable, payload: bytes) -> None:
        job = new_job(1, payload=payload)
        commit(durable.store, [job])
        job.payload = None  # spilled: only the store has it now
        job.attempts = 1
        commit(durable.store, [job])
        assert read_payloads(durable.store, [1]) == {1: payload}
        assert loaded(durable.reopen()).jobs[0].payload == payload
        found = get(durable.store, 1)
        assert found is not None
        assert (found.payload, found.attempts) == (payload, 1)

    @pytest.mark.parametrize("payload", [b"", b"short", LONG])
    def test_a_payload_let_go_between_two_stagings(self, durable: Durable, payload: bytes) -> None:
        job = new_job(1, payload=payload)
        durable.store.stage([job])
        job.payload = None
        durable.store.stage([job])
        run(durable.store.commit())
        assert read_payloads(durable.store, [1]) == {1: payload}

    def test_finding_does_not_read_them(self, durable: Durable) -> None:
        commit(durable.store, [finished_job(1), finished_job(2, payload=self.LONG)])
        assert [job.payload for job in find(durable.store, JobQuery())] == [None, None]

    def test_many_are_read_at_once(self, durable: Durable) -> None:
        of = function()
        commit(durable.store, [new_job(number, of, payload=b"%d" % number) for number in range(1, 3_001)])
        wanted = list(range(2, 3_001, 2))
        assert read_payloads(durable.store, wanted) == {number: b"%d" % number for number in wanted}

    def test_dropped_with_the_job(self, durable: Durable) -> None:
        commit(durable.store, [finished_job(1, payload=self.LONG)])
        run(durable.store.drop_finished(0, 0))
        assert read_payloads(durable.store, [1]) == {}
        commit(durable.store, [finished_job(1, payload=b"another life")])
        assert read_payloads(durable.store, [1]) == {1: b"another life"}

    def test_a_job_dropped_while_it_is_being_retried_is_kept_anew(self, durable: Durable) -> None:
        commit(durable.store, [finished_job(1, state=FAILED, payload=self.LONG)])
        job = get(durable.store, 1)
        assert job is not None
        run(durable.store.drop_finished(0, 0))
        commit(durable.store, [retry(job)])
        assert loaded(durable.reopen()).jobs[0].payload == self.LONG


class TestRevisions:
    def test_each_staging_is_newer(self, durable: Durable) -> None:
        job = new_job(1)
        revisions = [job.revision]
        for _ in range(3):
            durable.store.stage([job])
            revisions.append(job.revision)
        assert revisions == sorted(set(revisions))

    def test_a_change_that_is_not_newer_is_refused(self, durable: Durable) -> None:
        ours = new_job(1)
        commit(durable.store, [ours])
        theirs = other_copy(ours)
        assert list(commit(durable.store, [finish(ours)])) == []
        theirs.state = RUNNING
        assert list(commit(durable.store, [theirs])) == [1]  # it carries the same revision as our completion
        theirs.revision = 0
        assert list(commit(durable.store, [theirs])) == [1]  # and now an older one
        assert [job.state for job in find(durable.store, JobQuery())] == [DONE]

    def test_the_others_of_the_batch_are_kept(self, durable: Durable) -> None:
        old = [new_job(number) for number in range(1, 21)]
        commit(durable.store, old)
        commit(durable.store, old)
        late = [other_copy(job) for job in old if job.id % 3 == 0]
        for job in late:
            job.revision = 0
        new = [new_job(number) for number in range(21, 31)]
        changed = [finish(job) for job in old if job.id % 3 == 1]
        payload = new_job(31, payload=b"long" * 1000)
        durable.store.stage([*changed, *late, *new, payload], [], 100)
        refused = run(durable.store.commit())
        assert sorted(refused) == [3, 6, 9, 12, 15, 18]
        assert ids(find(durable.store, JobQuery(states=frozenset({DONE})))) == [19, 16, 13, 10, 7, 4, 1]
        snapshot = loaded(durable.reopen())
        assert [job.id for job in snapshot.jobs if job.id > 20] == list(range(21, 32))
        assert snapshot.jobs[-1].payload == b"long" * 1000
        assert snapshot.next_job_id == 100

    def test_they_survive_a_restart(self, durable: Durable) -> None:
        job = new_job(1)
        commit(durable.store, [job])
        restored = loaded(durable.reopen()).jobs[0]
        assert restored.revision == job.revision
        assert list(commit(durable.store, [finish(restored)])) == []
        assert list(commit(durable.store, [job])) == [1]


class TestReading:
    """Reads are awaited: they come in batches, leave the event loop to others, and may be given up."""

    def test_many_at_once(self, store: Store) -> None:
        commit(store, [finished_job(number, payload=b"%d" % number) for number in range(1, 300)])
        found = run(store.read_jobs(range(1, 400)))
        assert sorted(found) == list(range(1, 300))
        assert all(job.id == job_id and job.payload == b"%d" % job_id for job_id, job in found.items())
        assert run(store.read_payloads(range(1, 400))) == {number: b"%d" % number for number in range(1, 300)}

    @pytest.mark.parametrize("payload", [b"", b"\0", b"\0a\0\0", b"\xff\xfe", bytes(range(256)) * 20])
    def test_payloads_are_any_bytes(self, store: Store, payload: bytes) -> None:
        commit(
            store,
            [finished_job(1, payload=payload), finished_job(2, payload=b"between"), finished_job(3, payload=payload)],
        )
        assert run(store.read_payloads([3, 1, 2, 4])) == {1: payload, 2: b"between", 3: payload}

    def test_names_in_one_batch_and_the_newest_of_each(self, store: Store) -> None:
        jobs = [finished_job(number, name=b"%d" % (number % 100), state=FAILED) for number in range(1, 1001)]
        commit(store, jobs)
        found = run(store.find_named({b"%d" % number for number in range(50, 150)}))
        assert {name: job.id for name, job in found.items()} == {b"%d" % n: 900 + n for n in range(50, 100)}
        assert run(store.find_named([b"50", b""], since_us=NOW_US + 951)) == {}
        assert run(store.find_named(())) == {}

    @pytest.mark.parametrize(
        "query",
        [
            JobQuery(unique=b"none"),
            JobQuery(name=b"none"),
            JobQuery(states=frozenset({FAILED}), unique=b"none"),
            JobQuery(states=frozenset({CANCELLED})),
            JobQuery(function=b"resize", error_contains=b"none"),
            JobQuery(dead=True),
            JobQuery(since_us=NOW_US * 2),
        ],
        ids=str,
    )
    def test_others_have_their_turn_while_much_is_searched(self, store: Store, query: JobQuery) -> None:
        commit(store, [finished_job(number, unique=b"key", state=FAILED) for number in range(1, 5001)])
        found, turns = run(counting_turns(store.find(query)))
        assert found == []
        assert turns >= (1 if query.name else 5)  # a store may have an index of names

    def test_others_have_their_turn_while_much_is_listed(self, store: Store) -> None:
        commit(store, [finished_job(number, state=FAILED) for number in range(1, 3001)])
        found, turns = run(counting_turns(store.find(JobQuery(states=frozenset({FAILED}), limit=3000))))
        assert ids(found) == list(range(3000, 0, -1))
        assert turns >= 5

    def test_others_have_their_turn_while_much_is_dropped(self, store: Store) -> None:
        commit(store, [finished_job(number, state=FAILED) for number in range(1, 8_001)])
        count, turns = run(counting_turns(store.drop_finished(0, 1000)))
        assert (count, turns >= 5) == (7000, True)

    def test_others_have_their_turn_while_much_is_loaded(self, durable: Durable) -> None:
        of = function()
        commit(durable.store, [new_job(number, of) for number in range(1, 5001)])
        commit(durable.store, [new_job(number, of, name=b"%d" % number) for number in range(5001, 8001)])
        snapshot, turns = run(counting_turns(durable.reopen().load_apart(Function)))
        assert ids(snapshot.jobs) == list(range(5001, 8001))
        assert turns >= 3000 // 50
        assert snapshot.plain is not None
        rows, turns = run(counting_turns(all_portions(snapshot.plain)))
        assert [row[0] for row in rows] == list(range(1, 5001))
        assert turns >= 5000 // 512

    def test_a_load_that_is_given_up_leaves_the_store_as_it_was(self, durable: Durable) -> None:
        of = function()
        commit(
            durable.store,
            [new_job(number, of, name=b"odd%d" % number if number % 2 else b"") for number in range(1, 3001)],
        )

        async def story() -> None:
            for turns in (1, 5, 50):
                loading = asyncio.create_task(durable.store.load_apart(Function))
                for _ in range(turns):
                    await asyncio.sleep(0)
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
            snapshot = await durable.store.load_apart(Function)
            if snapshot.plain is not None:
                await anext(snapshot.plain)
                await snapshot.plain.aclose()

        run(story())
        assert ids(loaded(durable.store).jobs) == list(range(1, 3001))
        assert read_payloads(durable.store, [1]) == {1: b"payload"}

    def test_a_read_that_is_given_up_leaves_the_store_as_it_was(self, store: Store) -> None:
        commit(store, [finished_job(number) for number in range(1, 3000)])

        async def story() -> None:
            reads = [store.find(JobQuery(unique=b"none")), store.read_jobs([1]), store.read_payloads([1])]
            tasks = [asyncio.ensure_future(read) for read in reads]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        run(story())
        assert ids(find(store, JobQuery(limit=2))) == [2999, 2998]
        assert read_payloads(store, [2999]) == {2999: b"payload"}


async def counting_turns(work: Coroutine[Any, Any, Result]) -> tuple[Result, int]:
    """The result of some work, and how many turns others had while it was done."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    try:
        return await work, turns
    finally:
        counting.cancel()


async def all_portions(portions: AsyncIterable[Sequence[PlainJob]]) -> list[PlainJob]:
    return [row async for portion in portions for row in portion]
