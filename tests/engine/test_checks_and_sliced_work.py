"""While work in slices is pending, `check_engine` allows what is not done yet, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from switchgear.engine.sliced_work import SlicedKind
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import BrokenInvariant, check_engine
from tests.engine.harness import Harness
from tests.engine.limiter_words import limit, limiter_of


def forever() -> Iterator[None]:
    while True:
        yield


def review_nothing(harness: Harness) -> object:
    limit(harness, fair=True)
    limiter_of(harness).is_reviewing = True
    return harness.function()


def lose_a_worker(harness: Harness) -> object:
    worker, _ = harness.running()
    harness.engine.sliced_work.units_per_turn = 0
    harness.pass_seconds(0)
    harness.engine.remove_worker(worker)
    harness.engine.sliced_work.clear()
    return worker


def lose_a_subscriber(harness: Harness) -> object:
    peer = RecordingPeer()
    harness.submit(watcher=peer)
    peer.ended_subscriptions, peer.subscriptions = peer.subscriptions, {}
    return peer


def tell_no_successor(harness: Harness) -> object:
    worker, job = harness.running()
    harness.submit(b"other", predecessors=(job.id,))
    harness.engine.sliced_work.units_per_turn = 0
    harness.engine.transitions.failures_per_turn = 0
    harness.pass_seconds(0)
    harness.engine.complete(worker, job.id, b"")
    harness.engine.sliced_work.clear()
    return job.id


def tell_no_sleeper(harness: Harness) -> object:
    function = harness.function()
    harness.engine.pause(function)
    harness.submit()
    assert harness.engine.sleep(harness.worker())
    function.paused = False
    return function


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (review_nothing, SlicedKind.LIMITS),
        (lose_a_worker, SlicedKind.REQUEUE),
        (lose_a_subscriber, SlicedKind.UNSUBSCRIBE),
        (tell_no_successor, SlicedKind.UNBLOCK),
        (tell_no_sleeper, SlicedKind.OFFER),
        (tell_no_sleeper, SlicedKind.WAKE_ALL),
    ],
)
def test_only_pending_work_about_the_same_subject_excuses_a_difference(
    harness: Harness, break_it: Callable[[Harness], object], kind: SlicedKind
) -> None:
    subject = break_it(harness)
    sliced_work = harness.engine.sliced_work
    sliced_work.units_per_turn = 0
    sliced_work.allow_turn()
    for other in SlicedKind:
        sliced_work.start(forever(), other, object())
    with pytest.raises(BrokenInvariant):
        check_engine(harness.engine)
    sliced_work.start(forever(), kind, subject)
    check_engine(harness.engine)
