"""What a bridge does when it has reached its Redis: find out what became of what it held before.

After a restart of the server, its jobs are in the engine again, or have ended and are in the store's history, and their
claims are still in Redis under the name of the earlier run.  Each job remembers that name as its origin.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, Job, Peer
from switchgear.net.bridge.inbound import Claim, Inbound, Served
from switchgear.net.bridge.keys import FUNCTIONS, IDENTITY, Keys
from switchgear.net.bridge.line import Line
from switchgear.net.bridge.office import FINAL, Office
from switchgear.net.bridge.scripts import SCRIPTS

__all__ = ["Recovery"]


class Recovery:
    """Looks through Redis after each connection."""

    def __init__(self, office: Office, inbound: Inbound, watcher: Peer) -> None:
        self.office = office
        self.inbound = inbound
        self.functions: set[bytes] = set()  # that any server has ever bridged
        self._watcher = watcher
        self._is_first = True

    async def identify(self, line: Line) -> bytes:
        """Which Redis this is; one that has lost its data is another.  Raises LineLost."""
        await line.call_all([("SET", IDENTITY, secrets.token_hex(8), "NX")])
        (answer,) = await line.call_all([("GET", IDENTITY)])
        return answer if isinstance(answer, bytes) else b"-"

    async def find_functions(self, line: Line) -> None:
        (names,) = await line.call_all([("SMEMBERS", FUNCTIONS)])
        if isinstance(names, set | list):
            self.functions = set(names)

    async def run(self, line: Line) -> None:
        """Go on with what is ours; raises LineLost."""
        await self.find_functions(line)
        restored = self._restored() if self._is_first else {}
        names = {function for function, _ in restored} | self.functions
        keys = [Keys(name) for name in sorted(names)]
        answers = await line.call_all([("HGETALL", each.holders) for each in keys])
        self.office.hub.begin_turn()
        for each, holders in zip(keys, answers, strict=True):
            if isinstance(holders, dict):
                self._go_through(each.function, holders, restored)
        for (function, job_id), job in restored.items():
            self._settle_with(Keys(function), job_id, job)
        self._is_first = False

    def _restored(self) -> dict[tuple[bytes, bytes], Job]:
        """Jobs of this Redis that the engine has from an earlier run."""
        prefix = self.office.unique_prefix
        found: dict[tuple[bytes, bytes], Job] = {}
        for job in self.office.engine.jobs.values():  # where all are that have an origin
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
            elif server != self.office.server:
                self.inbound.lose(known.claims[job_id])
        if unknown:
            self._look_up(function, unknown)

    def _take_over(self, served: Served, job_id: bytes, job: Job) -> None:
        """A job is ours again; it may have ended while we were asking."""
        self._rename(served.keys, job_id, job.origin.encode())
        if job.state in FINAL_STATES:
            self.inbound.write_found(served, job_id, job)
            return
        claim = served.claims[job_id] = Claim(served, job_id)
        served.waiting += 1
        self.office.engine.watch(job, self._watcher)
        self.inbound.adopt(claim, job)

    def _rename(self, keys: Keys, job_id: bytes, server: bytes) -> None:
        office = self.office
        words = (office.lease_ms, server, office.server, job_id)
        office.deeds.add(("EVALSHA", SCRIPTS.take_over, 2, keys.claimed, keys.holders, *words))

    def _look_up(self, function: bytes, holders: dict[bytes, tuple[bytes, bytes]]) -> None:
        """Claims without a job in the engine: perhaps it has ended.  If it never began, it begins now."""
        ended = self._ended(function, holders) if self._is_first else {}
        for job_id, (server, queue) in holders.items():
            job = ended.get(job_id)
            if job is not None and job.origin.encode() == server:
                served = self.inbound.serve(function)
                self._rename(served.keys, job_id, server)
                self.inbound.write_found(served, job_id, job)
            elif server == self.office.server:
                self.inbound.read(self.inbound.serve(function), job_id, queue)

    def _ended(self, function: bytes, job_ids: dict[bytes, Any]) -> dict[bytes, Job]:
        names = {self.inbound.unique(function, job_id): job_id for job_id in job_ids}
        try:
            found = self.office.hub.find_named(frozenset(names))
        except Refused:
            return {}
        # One that was cancelled may have been given back before, and claimed again; it is better to run it.
        return {names[name]: job for name, job in found.items() if job.state in (DONE, FAILED)}

    def _settle_with(self, keys: Keys, job_id: bytes, job: Job) -> None:
        """A job that we no longer hold: somebody else has it, or has done it."""
        self.office.deeds.add(
            ("HMGET", keys.job(job_id), "status", "output"), then=partial(self._settled_elsewhere, job)
        )

    def _settled_elsewhere(self, job: Job, fields: list[bytes | None]) -> None:
        engine = self.office.engine
        status, output = fields
        if status == FINAL[0] and engine.settle(job, output or b""):
            return
        engine.cancel(job)
