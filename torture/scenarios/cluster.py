"""Three nodes on one PostgreSQL with a synchronous standby, all of them under load.

Owners are killed, stopped in order, and frozen for twice their lease; PostgreSQL is restarted, killed, disconnected and
failed over.  What any node has acknowledged must be there, and all functions must be accepted elsewhere soon.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any

import psycopg
from tests.support.postgres import ReplicatedPostgres, running_postgres, running_standby

from torture.peers import STEADY_SUBMITTERS, Peer
from torture.peers.load import FUNCTIONS, Load
from torture.run import Run
from torture.scenarios.kills import some_of_everybody
from torture.scenarios.postgres import restart
from torture.server import PATIENCE, START_SECONDS, DidNotStart, ServerProcess, free_ports, serve_arguments

NODES = ("ada", "bob", "cleo")
# A busy machine needs a longer one, or nodes are evicted that had no fault but to wait for a processor.
LEASE_SECONDS = float(os.environ.get("TORTURE_LEASE_SECONDS", "1"))
LIVES_PER_RUN = 10
FAULTS_PER_LIFE = 10
# A node that stands still for longer than this although PostgreSQL answers will not go on by itself.
STUCK_SECONDS = 30.0 * max(1.0, LEASE_SECONDS) * PATIENCE
# What the last owner had sent is read after so long.
LAST_WORDS_SECONDS = 0.05
# Many jobs that wait would leave submitters without anything to do, and the takeover could not be timed.
MOST_OWED = 2_000


# What is told of the database when nothing is acknowledged any more.
DATABASE_QUESTIONS = (
    b"SELECT application_name, state, sync_state, sent_lsn, flush_lsn FROM pg_stat_replication",
    b"SELECT pid, state, wait_event_type, wait_event, now() - xact_start, left(query, 80) FROM pg_stat_activity"
    b" WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    b"SELECT holder, epoch, beat, name FROM sg_lease",
    b"SELECT name, epoch, beat FROM sg_node",
)


class Node:
    """One node, started again whenever it ends, as a supervisor does."""

    def __init__(self, run: Run, name: str, database: str = "", settings: Mapping[str, object] | None = None) -> None:
        """`database` is the URL by which this node reaches the database, if that is not the one of the run."""
        self.name = name
        self.ports = free_ports(random.Random())
        self._run = run
        self._log = run.directory / f"output-{name}"
        settings = {**run.settings, **cluster_settings(name), **(settings or {})}
        self._arguments = serve_arguments(self.ports, database or run.database, settings, *run.arguments)
        self.process: ServerProcess | None = None

    def start(self) -> None:
        self.process = self._run.starter.start(self.ports, self._log, self._arguments)

    def close(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None

    async def supervise(self) -> None:
        """Start it again when it has ended."""
        while True:
            if self.process is None or not self.process.is_running():
                self.close()
                self.start()
            await asyncio.sleep(0.05)

    async def answers(self) -> None:
        """Wait until it does, whichever of its lives that is."""
        until = time.monotonic() + START_SECONDS
        while True:
            await asyncio.sleep(0.05)
            try:
                if self.process is not None:
                    await self.process.answers()
                    return
            except DidNotStart:
                if time.monotonic() > until:
                    raise

    def output(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def cluster_settings(name: str) -> dict[str, object]:
    """What a node is told beyond what any server is."""
    settings: dict[str, object] = {"cluster.enabled": "true", "cluster.name": name}
    settings["cluster.lease_seconds"] = LEASE_SECONDS
    settings["cluster.allow_async"] = "true"  # while one PostgreSQL is gone, the other one has no standby yet
    return settings


class Nodes:
    """The three nodes of a run, and what is done to them."""

    def __init__(self, run: Run, pair: ReplicatedPostgres) -> None:
        self.run = run
        self.pair = pair
        self.nodes = self.new_nodes()
        run.ports = self.nodes[0].ports

    def new_nodes(self) -> list[Node]:
        return [Node(self.run, name) for name in NODES]

    def peers(self) -> list[Peer]:
        """Who speaks to one of the nodes.  Somebody always submits to each function, or the takeover is not timed."""
        return [*some_of_everybody(self.run.chance), *STEADY_SUBMITTERS]

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()

    def end(self) -> None:
        """Nothing happens to them any more."""
        self.close()

    async def one_life(self) -> None:
        """From the start of all nodes to the death of all of them, with faults in between."""
        run = self.run
        # From the beginning: on a busy machine a node may be evicted while it starts.
        supervisors = [asyncio.create_task(node.supervise()) for node in self.nodes]
        try:
            await asyncio.gather(*(node.answers() for node in self.nodes))
            await asyncio.to_thread(self.compare)
        except BaseException:
            for supervisor in supervisors:
                supervisor.cancel()
            raise
        run.history.record("faults", True)
        loads = [Load(node.ports, run.history, run.chance, direct=False, prefix=node.name) for node in self.nodes]
        stop = asyncio.Event()
        for load in loads:
            load.most_owed = MOST_OWED
        speaking = [asyncio.create_task(load.run(self.peers(), until=stop.wait())) for load in loads]
        try:
            await self._faults()
        finally:
            for supervisor in supervisors:
                supervisor.cancel()
            await asyncio.gather(*supervisors, return_exceptions=True)
            self.close()  # before the peers hang up: nothing that they have sent is done after the jobs are compared
            stop.set()
            await asyncio.gather(*speaking)
            for load in loads:
                load.close()
        run.history.record("gone")
        run.tally.counts["kills"] += len(self.nodes)

    def compare(self) -> None:
        """Is everything there that should be, before anybody speaks to the nodes?"""
        self.run.compare()

    def faults(self) -> list[Callable[[], Awaitable[None]]]:
        """What may happen, the more often the more often it is in this list."""
        return [
            *[self._kill_owner] * 7,
            *[self._freeze_owner] * 2,
            self._stop_owner,
            self._kill_standby,
            self._freeze_standby,
            *[self._restart_postgres] * 3,
            self._hang_up,
            *[self._fail_over] * 2,
        ]

    async def _faults(self) -> None:
        run = self.run
        faults = self.faults()
        for _ in range(FAULTS_PER_LIFE):
            if run.plan.is_over() or run.is_failed:
                return
            await asyncio.sleep(0.5 * run.chance.random())
            # The first fault of a run is the one that the fence is for.
            await (run.chance.choice(faults) if run.tally.counts["pauses"] else self._freeze_owner)()

    # --- faults ---

    async def _kill_owner(self) -> None:
        owner = await self._owner(hide_process=self.run.chance.random() < 0.7)
        if owner is None or owner.process is None:
            return
        await asyncio.to_thread(owner.process.kill)
        self.run.tally.counts["kills"] += 1
        await self._acknowledged_elsewhere()

    async def _freeze_owner(self) -> None:
        """For twice its lease: another node goes on, and it says nothing more."""
        owner = await self._owner()
        if owner is None or owner.process is None:
            return
        process = owner.process
        process.pause()
        self.run.tally.counts["pauses"] += 1
        begun = time.monotonic()
        await self._acknowledged_elsewhere()
        await asyncio.sleep(max(0.0, 2 * LEASE_SECONDS - (time.monotonic() - begun)))
        await self._replaced(owner)
        process.resume()
        if not await asyncio.to_thread(process.wait, STUCK_SECONDS):
            self._stuck(f"{owner.name} was replaced, and did not end:\n{owner.output()[-2000:]}")

    async def _stop_owner(self) -> None:
        owner = await self._owner()
        if owner is None or owner.process is None:
            return
        self.run.history.record("stopping")
        process = owner.process
        process.signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, STUCK_SECONDS)
        self.run.tally.counts["stops"] += 1
        await self._acknowledged_elsewhere()

    async def _kill_standby(self) -> None:
        owner = await self._owner()
        standby = self.run.chance.choice([node for node in self.nodes if node is not owner])
        if standby.process is not None:
            await asyncio.to_thread(standby.process.kill)
            self.run.tally.counts["kills"] += 1

    async def _freeze_standby(self) -> None:
        owner = await self._owner()
        standby = self.run.chance.choice([node for node in self.nodes if node is not owner])
        if standby.process is not None:
            standby.process.pause()
            self.run.tally.counts["pauses"] += 1
            await asyncio.sleep(2 * LEASE_SECONDS)
            standby.process.resume()

    async def _restart_postgres(self) -> None:
        how = self.run.chance.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))
        await self._database_fault(lambda: restart(self.pair.primary, how), "database_faults")
        self.run.tally.counts["database_restarts"] += 1

    async def _hang_up(self) -> None:
        await self._database_fault(self.pair.primary.hang_up, "database_faults")

    async def _fail_over(self) -> None:
        await self._database_fault(self.pair.fail_over, "fail_overs")

    async def _database_fault(self, fault: Callable[[], object], counted_as: str) -> None:
        await asyncio.to_thread(fault)
        self.run.tally.counts[counted_as] += 1
        await self._acknowledged(STUCK_SECONDS)

    # --- what is so ---

    async def _owner(self, *, hide_process: bool = False) -> Node | None:
        """The node that owns the jobs; None if none does.  With `hide_process`, other nodes cannot see that its process
        ends, as if it were on another machine."""
        name = await asyncio.to_thread(self._owner_name, hide_process)
        return next((node for node in self.nodes if node.name == name), None)

    async def _replaced(self, node: Node) -> None:
        """Wait until the other nodes have taken the place of this one, which stands still."""
        until = time.monotonic() + STUCK_SECONDS
        while await asyncio.to_thread(self._has_place, node):
            if time.monotonic() > until:
                self._stuck(f"{node.name} stood still for {STUCK_SECONDS:g} s and was not replaced")
                return
            await asyncio.sleep(0.05)

    def _has_place(self, node: Node) -> bool:
        """Whether this node is the owner, as far as one can tell."""
        return self._owner_name(False) in (node.name, "")

    def _owner_name(self, hide_process: bool) -> str:
        until = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < until:
            try:
                with psycopg.connect(self.run.database, autocommit=True, connect_timeout=2) as connection:
                    row: Any = connection.execute(b"SELECT name FROM sg_lease WHERE holder <> 0").fetchone()
                    if row is not None:
                        if hide_process:
                            connection.execute(b"UPDATE sg_lease SET process = ''")
                        return str(row[0]).removeprefix("node ").partition(",")[0]
            except psycopg.Error:
                pass
            time.sleep(0.05)
        return ""

    async def _acknowledged_elsewhere(self) -> None:
        """Wait until submissions to each function are acknowledged again, and note how long that took."""
        begun = time.monotonic()
        await asyncio.sleep(LAST_WORDS_SECONDS)
        if await self._acknowledged(STUCK_SECONDS):
            self.run.tally.takeover_seconds.append(round(time.monotonic() - begun, 3))

    async def _acknowledged(self, seconds: float) -> bool:
        """Wait until a submission to each function that is sent from now on is acknowledged; returns whether that
        was."""
        history = self.run.history
        begun = history.now
        until = time.monotonic() + seconds
        while waiting := [name for name in FUNCTIONS if history.accepted_since.get(name, 0) <= begun]:
            if time.monotonic() > until:
                database = await asyncio.to_thread(self._database_state)
                outputs = "\n".join(f"{node.name}:\n{node.output()[-2000:]}" for node in self.nodes)
                text = f"nothing was acknowledged for {seconds:g} s of {', '.join(waiting)}:\n{database}\n{outputs}"
                self._stuck(text)
                return False
            await asyncio.sleep(0.005)
        return True

    def _database_state(self) -> str:
        """What PostgreSQL does at this moment: does it wait for its standby, or for a lock?"""
        lines: list[str] = []
        for question in DATABASE_QUESTIONS:
            try:
                with psycopg.connect(self.run.database, autocommit=True, connect_timeout=2) as connection:
                    lines += [str(row) for row in connection.execute(question).fetchall()]
            except psycopg.Error as error:
                lines.append(str(error))
        return "\n".join(lines)

    def _stuck(self, text: str) -> None:
        self.run.violate("stuck", text)


async def cluster(run: Run) -> None:
    await lives_of_nodes(run, Nodes)


async def lives_of_nodes(run: Run, kind: type[Nodes]) -> None:
    run.draw_settings()
    with ExitStack() as stack:
        primary = stack.enter_context(running_postgres())
        pair = ReplicatedPostgres(primary, stack.enter_context(running_standby(primary)))
        run.database = pair.new_url()
        nodes = kind(run, pair)
        stack.callback(nodes.end)
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            await nodes.one_life()
        await run.drain()
