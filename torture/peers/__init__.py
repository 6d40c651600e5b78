"""Peers of every protocol.  They share no code with the product: the formats are written down here once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from torture.peers import draft, dwork, gearman, gearmonkey, http, pingpong, wmp
from torture.peers.load import FUNCTIONS, Load

Peer: TypeAlias = Callable[[Load], Awaitable[None]]

# Who speaks to a server at the same time.
EVERYBODY: tuple[Peer, ...] = (
    gearman.submitter,
    gearman.streaming_submitter,
    gearman.unique_submitter,
    gearman.unique_submitter,
    gearman.waiting_client,
    gearman.watching_client,
    gearman.watching_client,
    gearman.text_canceller,
    gearman.packet_canceller,
    gearman.worker,
    gearman.worker,
    draft.application,
    draft.worker,
    gearmonkey.client,
    gearmonkey.worker,
    dwork.creator,
    dwork.worker,
    wmp.worker,
    pingpong.client,
    pingpong.worker,
    http.submitter,
    http.batch_submitter,
    http.worker,
    http.registered_worker,
)

# Whoever needs to know when each function is served again adds these.
STEADY_SUBMITTERS: tuple[Peer, ...] = tuple(partial(gearman.steady_submitter, function=name) for name in FUNCTIONS)
