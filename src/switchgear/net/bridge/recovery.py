"""`Recovery`: finds out after each (re)connection what became of the jobs that the bridge held before.

After a restart of the server its jobs are in the engine, or have ended and are in the store's history. Their claims are
still in Redis under the name of the earlier run, which each job has as its origin.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, Job, Peer
from switchgear.net.bridge.bridge_context import FINAL, BridgeContext
from switchgear.net.bridge.inbound import Claim, Inbound, Served
from switchgear.net.bridge.keys import FUNCTIONS, IDENTITY, Keys
from switchgear.net.bridge.redis_connection import RedisConnection
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.protocols.pending_read import Reading, Step

__all__ = ["Recovery"]


class Recovery:
    """Reconciles the bridge with Redis after each connection."""

    def __init__(self, shared: BridgeContext, inbound: Inbound, watcher: Peer) -> None:
        self.shared = shared
        self.inbound = inbound
        self.functions: set[bytes] = set()  # all functions that any server has bridged
        self._watcher = watcher
        self._is_first = True

    async def identify(self, connection: RedisConnection) -> bytes:
        """Find out which Redis this is; a Redis that has lost its data counts as another. Raises
        RedisConnectionLost."""
        await connection.call_all([("SET", IDENTITY, secrets.token_hex(8), "NX")])
        (answer,) = await connection.call_all([("GET", IDENTITY)])
        return answer if isinstance(answer, bytes) else b"-"

    async def find_functions(self, connection: RedisConnection) -> None:
        (names,) = await connection.call_all([("SMEMBERS", FUNCTIONS)])
        if isinstance(names, set | list):
            self.functions = set(names)

    async def run(self, connection: RedisConnection) -> None:
        """Resume all jobs of this server; raises RedisConnectionLost."""
        await self.find_functions(connection)
        restored = self._restored() if self._is_first else {}
        names = {function for function, _ in restored} | self.functions
        keys = [Keys(name) for name in sorted(names)]
        answers = await connection.call_all([("HGETALL", each.holders) for each in keys])
        self.shared.hub.begin_turn()
        for each, holders in zip(keys, answers, strict=True):
            if isinstance(holders, dict):
                self._go_through(each.function, holders, restored)
        for (function, job_id), job in restored.items():
            self._resolve_lost_claim(Keys(function), job_id, job)
        self._is_first = False

    def _restored(self) -> dict[tuple[bytes, bytes], Job]:
        """Jobs of this Redis that the engine has restored from an earlier run."""
        prefix = self.shared.unique_prefix
        found: dict[tuple[bytes, bytes], Job] = {}
        for job in self.shared.engine.jobs.values():  # jobs with an origin are never packed
            if job.unique.startswith(prefix) and job.id not in self.inbound.by_job:
                function = job.function.name
                found[function, job.unique[len(prefix) + len(function) + 1 :]] = job
        return found

    def _go_through(
        self, function: bytes, holders: dict[bytes, bytes], restored: dict[tuple[bytes, bytes], Job]
    ) -> None:
        unknown: dict[bytes, tuple[bytes, bytes]] = {}
        known = self.inbound.served.get(function)
        for job_id, holder in holders.items():
            server, _, queue = holder.partition(b" ")
            job = restored.get((function, job_id))
            if job is not None and job.origin.encode() == server:
                del restored[function, job_id]
                self._take_over(self.inbound.serve(function), job_id, job)
            elif known is None or job_id not in known.claims:
                unknown[job_id] = (server, queue)
            elif server != self.shared.server:
                self.inbound.lose(known.claims[job_id])
        if unknown:
            self._look_up(function, unknown)

    def _take_over(self, served: Served, job_id: bytes, job: Job) -> None:
        """Take over the claim of a job; the job may have ended meanwhile."""
        self._rename(served.keys, job_id, job.origin.encode())
        if job.state in FINAL_STATES:
            self.inbound.write_found(served, job_id, job)
            return
        claim = served.claims[job_id] = Claim(served, job_id)
        served.waiting += 1
        self.shared.engine.subscribe(job, self._watcher)
        self.inbound.adopt(claim, job)

    def _rename(self, keys: Keys, job_id: bytes, server: bytes) -> None:
        shared = self.shared
        words = (shared.lease_ms, server, shared.server, job_id)
        shared.commands.add(("EVALSHA", SCRIPTS.take_over, 2, keys.claimed, keys.holders, *words))

    def _look_up(self, function: bytes, holders: dict[bytes, tuple[bytes, bytes]]) -> None:
        """Handle claims without a job in the engine: write the result if the job has ended, and submit the job
        otherwise.
        """
        self.shared.hub.work_off(self._look_up_in_steps(function, holders))

    def _look_up_in_steps(self, function: bytes, holders: dict[bytes, tuple[bytes, bytes]]) -> Iterator[Step]:
        ended: dict[bytes, Job] = {}
        if self._is_first:
            ended = yield from self._ended(function, holders)
        for job_id, (server, queue) in holders.items():
            job = ended.get(job_id)
            if job is not None and job.origin.encode() == server:
                served = self.inbound.serve(function)
                self._rename(served.keys, job_id, server)
                self.inbound.write_found(served, job_id, job)
            elif server == self.shared.server:
                self.inbound.read(self.inbound.serve(function), job_id, queue)

    def _ended(self, function: bytes, job_ids: dict[bytes, Any]) -> Reading[dict[bytes, Job]]:
        names = {self.inbound.unique(function, job_id): job_id for job_id in job_ids}
        try:
            found = yield from self.shared.hub.find_named(frozenset(names))
        except Refused:
            return {}
        # A cancelled job may have been returned to its queue and claimed again, so it is run.
        return {names[name]: job for name, job in found.items() if job.state in (DONE, FAILED)}

    def _resolve_lost_claim(self, keys: Keys, job_id: bytes, job: Job) -> None:
        """Handle a job whose claim this server no longer has: another server has claimed or finished it."""
        self.shared.commands.add(
            ("HMGET", keys.job(job_id), "status", "output"), then=partial(self._resolved_elsewhere, job)
        )

    def _resolved_elsewhere(self, job: Job, fields: list[bytes | None]) -> None:
        engine = self.shared.engine
        status, output = fields
        if status == FINAL[0] and engine.complete_unowned(job, output or b""):
            return
        engine.cancel(job)
