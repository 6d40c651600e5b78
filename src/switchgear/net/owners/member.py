"""`OwnersMember`: this node among several that each own some partitions of the functions.

Every tenth of a lease it looks at the rows of nodes and partitions, and carries out what follows from them
(`switchgear.partitions`): it evicts dead nodes, claims free partitions and restores their jobs, and hands over
partitions that belong to a node that has come. Its links to the other nodes carry everything else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from switchgear.config import Config
from switchgear.engine.function_placement import FOREIGN_LIMIT
from switchgear.engine.handover import HandedOver
from switchgear.errors import ConfigError, Fenced, StorageError
from switchgear.model import Cause, Function
from switchgear.net.cluster import EVERY_HOST, GONE_LEASES
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.hub import Hub
from switchgear.net.owners.borrowed_jobs import BorrowedJobs
from switchgear.net.owners.cluster_channels import ClusterChannels
from switchgear.net.owners.cross_node_graphs import CrossNodeGraphs
from switchgear.net.owners.divided_functions import refuse_in_use
from switchgear.net.owners.foreign_edges import ForeignEdges, JobHeads
from switchgear.net.owners.function_gateway import FunctionGateway
from switchgear.net.owners.function_places import follow_places, placed_in
from switchgear.net.owners.link import LinkListener, NodeLink
from switchgear.net.owners.link_handshake import Opening
from switchgear.net.owners.link_session import LinkSession, RunVerb
from switchgear.net.owners.link_tls import TLS_SCHEME, LinkTls
from switchgear.net.owners.messages import LookSoon
from switchgear.net.owners.relay import AskRoom, Relay, RelayLink
from switchgear.net.owners.run_adoption import CLAIMABLE_US, RunAdoption
from switchgear.partitions import FREE, NodeWatch, partition_of, spread_over_nodes
from switchgear.postgresql import is_postgresql
from switchgear.storage.base import Snapshot
from switchgear.storage.postgres_fence import LOOKS_PER_LEASE
from switchgear.storage.postgres_partition_store import NodeAddress, PartitionStore
from switchgear.storage.postgres_partitions import ClusterView
from switchgear.storage.process_identity import has_ended
from switchgear.verbs.answers import NodeAnswer

__all__ = ["OtherNode", "OwnersMember", "owners_store"]

log = logging.getLogger("switchgear")

# The protocols of which every request was tried through other nodes.
SCHEMES: Final = ("dwork", "gearman", "gearmonkey", "http", "pingpong", "wmp")
NO_BRIDGE: Final = (
    "with cluster.mode = owners there is no bridge to a Redis, because one server has to know all jobs of a Redis; let"
    " its clients and workers connect to a gearmonkey:// listener instead"
)
# Ids of jobs come in blocks. More are reserved when half of them are used, long before the others are.
BLOCK_IDS: Final = 1 << 21
NO_BOUND: Final = 1 << 62
CONNECT_SECONDS: Final = 2.0
DRAIN_LOOK_SECONDS: Final = 0.05
# How long the running jobs of a function may go on that an operator places elsewhere: the operator waits.
PLACE_DRAIN_SECONDS: Final = 5.0


def owners_store(config: Config) -> PartitionStore:
    """The store of a node, not open; raises ConfigError for what this mode does not support."""
    if not is_postgresql(config.store_url):
        raise ConfigError("cluster.enabled: nodes share their jobs in PostgreSQL: set store to postgresql://…")
    for url in config.listen:
        if url.scheme in ("redis", "rediss"):
            raise ConfigError(f"listen: {url}: {NO_BRIDGE}")
        if url.scheme.removesuffix("s") not in SCHEMES and url.scheme not in SCHEMES:
            known = ", ".join(SCHEMES)
            raise ConfigError(f"listen: {url}: with cluster.mode = owners, the protocols are {known}")
    return PartitionStore(
        config.store_url,
        config.storage.payload_memory_bytes,
        lease_seconds=config.cluster.lease_seconds,
        name=config.cluster.name or socket.gethostname(),
    )


class OtherNode(NamedTuple):
    """Another node."""

    name: str
    link: NodeLink | None  # if it can be reached


class OwnersMember:
    """The partitions that this node owns, and its links to the other nodes."""

    def __init__(self, config: Config, store: PartitionStore) -> None:
        self._config = config
        self._store = store
        self.name = store.partitions.name
        self._node_id = store.partitions.node_id
        self._watch = NodeWatch(has_ended)
        self._view: ClusterView | None = None
        self._addresses: list[NodeAddress] = []
        self._links: dict[int, NodeLink] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._ids_end = 0
        self._is_leaving = False
        self.bound_to_functions: Mapping[TcpListener, bytes] = {}  # the service sets it
        self._gateway: FunctionGateway
        self._changing = asyncio.Lock()  # what this node owns
        self._is_look_due = asyncio.Event()  # before its time
        self._secret = b""
        self.tls = LinkTls(config.cluster)
        self._link_failures: dict[int, str] = {}  # by node, why the last link to it failed
        self.channels = ClusterChannels()
        self.run_verb: RunVerb  # for another node; the service sets it, and the next one
        self.ask_room: AskRoom
        self._hub: Hub
        self.relay: Relay
        self._borrowing: BorrowedJobs
        self._adoption: RunAdoption
        self._listener: LinkListener

    async def join(self, prefix: str) -> str:
        """Create the tables if there are none; returns the prefix of handles that all nodes use."""
        await self._store.prepare()
        if not self._config.cluster.allow_async:
            await self._store.nodes.check_replication()
        return await self._store.nodes.shared_prefix(prefix)

    async def begin(self, hub: Hub) -> None:
        """Enter this node, and claim what is free."""
        self._hub = hub
        engine = hub.engine
        self.relay = relay = Relay(engine, self.channels)
        relay.look_soon = self._is_look_due.set
        relay.room_at_owners = self.ask_room
        relay.cross_node_graphs = CrossNodeGraphs(hub, self._store, relay, relay.look_soon)
        self._store.for_owners = relay.cross_node_graphs.waiting
        relay.edges = ForeignEdges(hub, self._store, relay, self.other_nodes)
        self.channels.is_ours = relay.is_ours
        engine.placement = relay
        for function in engine.functions.values():  # listeners have named them
            function.limits = [FOREIGN_LIMIT] * 3
        relay.served = self._served()
        hub.own_name = self.name
        hub.changes.reserved_ids = NO_BOUND  # ids come in blocks that are stored before they are used
        hub.commits.output.owners = relay
        relay.on_answered = lambda: hub.soon(self._owners_answered)
        self._borrowing = relay.borrowing = BorrowedJobs(hub, relay)
        self._adoption = RunAdoption(hub, relay, self._store)
        self._secret = await self._store.shared_secret()
        self._listener = LinkListener(hub, relay, self.run_verb, self._node_id, self._secret, self.tls)
        host = self._host()
        port = await self._listener.open("" if host not in ("127.0.0.1", "localhost") else host, self._port())
        await self._store.join(f"{self.tls.scheme}{host}:{port}")
        self._listener.node_id = self._node_id
        await self._new_ids()
        engine.advance(hub.clock.now_us())
        self._gateway = FunctionGateway(
            self.bound_to_functions, self._config.limits, hub, relay, self._secret, self._node_id
        )
        await self._look()
        hub.commits.start()
        self._borrowing.start()
        relay.edges.start()

    def _served(self) -> list[tuple[bytes, str, int]]:
        """The listeners that only the owner of a function can serve, as other nodes reach them."""
        served: list[tuple[bytes, str, int]] = []
        for listener, function in self.bound_to_functions.items():
            host, port = listener.endpoints[0]
            own_host = self._config.cluster.host or (socket.gethostname() if host in EVERY_HOST else host)
            served.append((function, own_host, port))
        return served

    def _host(self) -> str:
        """The host at which other nodes reach this one."""
        if self._config.cluster.host:
            return self._config.cluster.host
        hosts = [url.host for url in self._config.listen]
        return hosts[0] if hosts and hosts[0] not in EVERY_HOST else socket.gethostname()

    def _port(self) -> int:
        return self._config.cluster.link_port

    def _owners_answered(self) -> None:
        self._hub.commits.owners_answered()

    # --- looking, for ever ---

    async def run(self) -> None:
        """Look after this node's partitions, until cancelled."""
        looks = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._store.partitions.lease_seconds / LOOKS_PER_LEASE):
                    await self._is_look_due.wait()
            self._is_look_due.clear()
            try:
                await self._look()
                looks += 1
                if looks % LOOKS_PER_LEASE == 0:
                    await self.take_schedules()
            except Fenced as fenced:
                self._hub.commits.read_failed(fenced)
                return
            except StorageError:  # the store says so itself
                self._watch.could_not_look()
            except Exception:
                log.exception("internal error while looking after partitions")

    async def _look(self) -> None:
        async with self._changing:
            await self._look_and_follow()

    async def _read_view(self) -> ClusterView:
        """Read what the database says about nodes, partitions and placed functions."""
        view = self._view = await self._store.look()
        self._hub.begin_turn()
        follow_places(self.relay, view.overrides, view.shards)
        return view

    async def _look_and_follow(self) -> None:
        view = await self._read_view()
        self._addresses = await self._store.addresses()
        now_s = time.monotonic()
        self._watch.look(view.nodes, now_s)
        self._listener.keep_only({node.id for node in view.nodes})
        self._follow_map(view)
        plan = self._watch.plan(self._node_id, view.nodes, view.partitions, now_s)
        for node in plan.evict:
            if await self._store.evict(node):
                log.warning("the node %s is gone; its partitions are free", node.name)
                self._is_look_due.set()  # each node claims what belongs to it now
                self._let_others_look()
        if plan.claim and not self._is_leaving:
            await self._store.claim(plan.claim)
            # The last owners of what is this node's now may have placed functions elsewhere since it has looked.
            view = await self._read_view()
        await self._restore_owned()
        if plan.claim:
            self._let_others_look()  # jobs can come to this node now, and others may give it more
        if not self._is_leaving:
            await self.relay.cross_node_graphs.take(view.inbox)
        if plan.hand_over and not self._is_leaving:
            await self._hand_over(plan.hand_over)
        if plan.evict or plan.claim or plan.hand_over:
            view = await self._read_view()
            self._follow_map(view)
        self._hub.begin_turn()
        self.relay.look_after()
        if self._hub.engine.next_job_id + BLOCK_IDS // 2 > self._ids_end:
            await self._new_ids()

    def _let_others_look(self) -> None:
        """Tell the other nodes that the database has changed: nobody owns a partition until its next owner looks."""
        for link in self._links.values():
            if link.is_usable:
                link.send(LookSoon())

    async def _new_ids(self) -> None:
        """Reserve a block of ids, which are above all that any node has used: later jobs come after earlier ones."""
        first = await self._store.reserve_ids(BLOCK_IDS)
        self._hub.engine.next_job_id = first
        self._ids_end = self.relay.ids_end = first + BLOCK_IDS

    # --- links ---

    def _follow_map(self, view: ClusterView) -> None:
        """Open links to new nodes, close those to nodes that are gone, and tell the relay which link leads to whom."""
        alive = {node.id for node in view.nodes}
        for node_id in [node_id for node_id in self._links if node_id not in alive]:
            self._links.pop(node_id).abort()
        for node_id, _, address, _ in self._addresses:
            if node_id in alive and node_id not in self._links and node_id not in self._connecting:
                task = asyncio.create_task(self._connect(node_id, address))
                self._connecting[node_id] = task
        self._use_links()

    async def _connect(self, node_id: int, address: str) -> None:
        try:
            host, _, port = address.removeprefix(TLS_SCHEME).rpartition(":")
            is_encrypted = address.startswith(TLS_SCHEME)
            if self.tls.is_required and not is_encrypted:
                self._note_link_failure(node_id, "it has no certificate, and this node has cluster.link_tls_ca")
                return
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(CONNECT_SECONDS):
                new_link = partial(self._new_link, node_id, is_encrypted=is_encrypted)
                _, link = await loop.create_connection(new_link, host.strip("[]"), int(port))
            self._links[node_id] = link
            self._use_links()
        except (OSError, TimeoutError, ValueError) as error:  # it is tried again with the next look
            self._note_link_failure(node_id, str(error) or f"no connection within {CONNECT_SECONDS:g} s")
        finally:
            self._connecting.pop(node_id, None)

    def _new_link(self, node_id: int, *, is_encrypted: bool) -> NodeLink:
        handshake = Opening(self._secret, self._node_id, self.name, node_id)
        tls = self.tls.opened() if is_encrypted else None
        return NodeLink(self._hub, self.relay, self._borrowing, handshake, tls, self._use_links)

    def _note_link_failure(self, node_id: int, reason: str) -> None:
        """Log why there is no link to a node, once."""
        if self._link_failures.get(node_id) != reason:
            self._link_failures[node_id] = reason
            name = next((name for each, name, _, _ in self._addresses if each == node_id), str(node_id))
            log.warning("no link to the node %s: %s", name, reason)

    def _use_links(self) -> None:
        view = self._view
        if view is None:
            return
        for node_id in [node_id for node_id, link in self._links.items() if link.is_closed]:
            why_failed = self._links.pop(node_id).why_failed
            if why_failed:
                self._note_link_failure(node_id, why_failed)
        links: dict[int, RelayLink] = {}
        for partition, owner in enumerate(view.partitions):
            link = self._links.get(owner.node_id)
            if (
                link is not None
                and link.is_usable
                and (owner.node_id != self._node_id or partition in self.relay.ready)
            ):
                links[partition] = link
        for node_id, link in self._links.items():
            if link.is_usable:
                self._link_failures.pop(node_id, None)
        self.relay.use_links(links)
        self.channels.use_links(node.link for node in self.other_nodes() if node.link is not None)
        self._borrowing.offer_soon()
        self._gateway.follow()

    # --- taking and giving partitions ---

    async def _restore_owned(self) -> None:
        """Restore the jobs of partitions and functions that this node owns and does not have: it has claimed them now,
        they were placed here, or an earlier attempt has failed."""
        relay = self.relay
        taken = set(self._store.partitions.owned) - relay.ready
        if self._is_leaving:
            return
        if taken:
            await self._restore(lambda name: relay.partition_of(name) in taken, taken)
            relay.ready |= taken
            self._start_restored(f"{len(taken)} partitions claimed")
        absent = frozenset(relay.absent)
        if absent:
            await self._restore(absent.__contains__, {relay.partition_of(name) for name in absent})
            relay.absent -= absent
            self._start_restored(f"{len(absent)} functions placed here")

    async def _restore(self, is_wanted: Callable[[bytes], bool], partitions: Collection[int]) -> None:
        """Restore the jobs of these functions beside those that this node has, and let their runs go on."""
        hub, engine = self._hub, self._hub.engine
        has_queue = self.relay.divided.shards.has_queue

        def is_taken(name: bytes) -> bool:
            return has_queue(name) and is_wanted(name)

        self._restoring_since_s = time.monotonic()
        await self._new_ids()
        hub.begin_turn()
        self._borrowing.begin_restoring(is_taken)
        try:
            await self._store_changes()
            snapshot, limits = await self._store.load_functions(is_taken, engine.function_named, hub.clock.now_us())
            self._restored_jobs = len(snapshot.jobs)
            hub.begin_turn()
            self.relay.divided.serve(is_taken)
            restored: dict[Function, bool] = {}
            for function in self._functions(is_taken):
                restored[function] = function.paused
                function.paused = True  # until everything is there
            own_runs = self._borrowing.take_out()
            try:
                await hub.adopt(snapshot, CLAIMABLE_US)
                await self._adoption.own_runs(own_runs)
            except StorageError as error:  # some jobs are restored; a new process begins with none
                raise Fenced(f"the jobs of claimed partitions could not be restored: {error}") from error
            others = [session.claims for session in self._listener.sessions() if session.node_name != self.name]
            await self._adoption.collect_claims(others, partitions, is_taken)
            hub.begin_turn()
        finally:
            self._borrowing.end_restoring()
        usual = [engine.settings.jobs_per_function] * 3
        for function in self._functions(is_taken):
            function.limits = limits.get(function, list(usual))
            function.paused = restored.get(function, False)

    def _start_restored(self, what: str) -> None:
        """What was restored is ready: give it to workers."""
        self.relay.edges.functions_came()
        if self._hub.engine.handing_out:
            self._hub.engine.start_handing_out()
        seconds = round(time.monotonic() - self._restoring_since_s, 3)
        log.info("%s, %d jobs with options restored in %g s", what, self._restored_jobs, seconds)

    def _functions(self, is_concerned: Callable[[bytes], bool]) -> list[Function]:
        return [function for function in self._hub.engine.functions.values() if is_concerned(function.name)]

    async def _hand_over(self, partitions: Collection[int]) -> None:
        """Hand partitions over. Their running jobs may finish within a lease; what still runs then runs again at the
        next owner."""
        relay = self.relay

        def is_concerned(name: bytes) -> bool:
            has_queue = relay.divided.shards.has_queue(name)
            return has_queue and relay.partition_of(name) in partitions and name not in relay.absent

        self._hub.begin_turn()
        await self._store_changes()
        self._hub.begin_turn()
        relay.ready -= set(partitions)
        await self._hand_over_functions(is_concerned, self._store.partitions.lease_seconds)
        # If this fails, the partitions are still this node's, and are restored.
        await self._store.hand_over(sorted(partitions))
        self._let_others_look()

    async def _hand_over_functions(self, is_concerned: Callable[[bytes], bool], drain_seconds: float) -> None:
        """Remove functions that are not this node's any more, and keep what the store does not have of them."""
        hub, engine, relay = self._hub, self._hub.engine, self.relay
        functions = self._functions(is_concerned)
        for function in functions:
            function.limits = [FOREIGN_LIMIT] * 3
            function.paused = True
        self._use_links()
        until_s = time.monotonic() + drain_seconds
        while any(function.running for function in functions):
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
            if time.monotonic() > until_s:
                break
        hub.begin_turn()
        timeouts = {
            (worker, function): worker.timeouts_us.get(function, 0)
            for function in functions
            for worker in function.workers
        }
        functions = self._functions(is_concerned)
        handed_over = HandedOver()
        schedules = [each for each in engine.schedules.values() if is_concerned(each.function_name)]
        for _ in engine.hand_over(functions, handed_over, schedules):
            await asyncio.sleep(0)
            hub.begin_turn()
        hub.payloads.resident_bytes -= handed_over.resident_bytes
        divided = relay.divided
        for worker, function in handed_over.registrations:
            if divided.serves_base(worker, function.name):
                continue  # it borrows jobs of this shard from now on
            if worker.alive and not isinstance(worker.peer, LinkSession):
                engine.can_do(worker, engine.function_named(function.name), timeouts.get((worker, function), 0))
        for worker, job in handed_over.runs:
            if isinstance(worker.peer, LinkSession):
                worker.peer.run_moves(job)
            elif not self._borrowing.go_on(worker, job):
                worker.peer.revoke(worker, job, Cause.TIMED_OUT)
        own = [(peer, job) for peer, job in handed_over.subscriptions if not isinstance(peer, LinkSession)]
        for peer, job in handed_over.subscriptions:
            if isinstance(peer, LinkSession):
                peer.moved(job)
        relay.follow(own, handed_over.unstored)
        await self._store_changes()

    async def place(self, function: bytes, partition: int | None) -> bool:
        """Put a function of this node into a partition; `None`: that of its name. False if it is another node's.

        Its running jobs may finish for a while, as when a partition is handed over. Raises StorageError, and then the
        function is where it was, or where it should be: the database says where.
        """
        async with self._changing:
            relay = self.relay
            if not relay.is_ours(function) or self._is_leaving:
                return False
            source = relay.partition_of(function)
            target = partition_of(function) if partition is None else partition
            if source == target:
                return True
            self._hub.begin_turn()
            await self._store_changes()
            self._hub.begin_turn()
            relay.absent.add(function)  # if anything fails, it is restored with the next look
            drain_seconds = min(self._store.partitions.lease_seconds, PLACE_DRAIN_SECONDS)
            await self._hand_over_functions(lambda name: name == function, drain_seconds)
            await self._store.place(function, source, target)
            self._let_others_look()
            await self._look_and_follow()
            return True

    async def divide(self, function: bytes, count: int) -> bool:
        """Divide a function of this node into shards, or with 1 unite those that it has, all of which must be this
        node's; False if something of that is another node's. Raises Refused if it has jobs or settings that would be
        lost, and StorageError, and then the database says whether it is divided."""
        async with self._changing:
            relay = self.relay
            shards = relay.divided.shards
            source = relay.partition_of(function)
            names = [function] if count > 1 else shards.names(function)
            if source not in relay.ready or self._is_leaving or not all(map(relay.is_ours, names)):
                return False
            self._hub.begin_turn()
            await self._store_changes()
            self._hub.begin_turn()
            engine = self._hub.engine
            usual_limit = engine.settings.jobs_per_function
            found = [engine.functions[name] for name in names if name in engine.functions]
            for each in found:
                refuse_in_use(each, usual_limit, engine.schedules.values(), self.bound_to_functions.values())
            relay.absent.update(names)  # if anything fails, they are restored with the next look
            await self._hand_over_functions(set(names).__contains__, 0.0)
            await self._store.divide(function, source, count, names if count == 1 else ())
            self._let_others_look()
            await self._look_and_follow()
            return True

    async def _store_changes(self) -> None:
        """Store everything that has changed so far; raises StorageError."""
        commits = self._hub.commits
        await self._hub.flush()
        while commits.changes.unkept or commits.changes.in_commit:
            if commits.storage_error is not None:
                raise commits.storage_error
            commits.start()
            await commits.wait()

    # --- the end ---

    async def leave(self) -> None:
        """Called when the server begins to stop: accept nothing more for others, and let them know."""
        self._is_leaving = True
        self._borrowing.is_stopping = True
        self.relay.ready.clear()
        self._use_links()
        with suppress(StorageError):
            await self._store.announce_leaving()

    async def close(self) -> None:
        """Close all links."""
        self._borrowing.close()
        self._gateway.close()
        self.relay.edges.close()
        self.relay.cross_node_graphs.close()
        for task in self._connecting.values():
            task.cancel()
        self._listener.close()
        for link in list(self._links.values()):
            link.abort()

    # --- for operators ---

    def other_nodes(self) -> list[OtherNode]:
        """The other nodes that are in the cluster, whether they can be reached or not, by name."""
        view = self._view
        if view is None:
            return []
        nodes = [OtherNode(node.name, self._usable_link(node.id)) for node in view.nodes if node.id != self._node_id]
        return sorted(nodes, key=lambda node: node.name)

    def spread(self, function: bytes, count: int) -> list[int]:
        """Partitions for so many shards of a function, of different nodes as far as there are nodes."""
        view = self._view
        first = self.relay.partition_of(function)
        return [] if view is None else spread_over_nodes(count, view.partitions, first)

    def owner_of(self, function: bytes) -> OtherNode | None:
        """The other node that owns a function; `None` if this node or no node owns it."""
        view = self._view
        if view is None:
            return None
        owner_id = view.partitions[self.relay.partition_of(function)].node_id
        for node in view.nodes:
            if node.id == owner_id != self._node_id:
                return OtherNode(node.name, self._usable_link(node.id))
        return None

    def partitions_of(self, names: Collection[str]) -> int:
        """The partitions that the nodes with these names own, as the bits of a number."""
        view = self._view
        if view is None:
            return 0
        ids = {node.id for node in view.nodes if node.name in names}
        return sum(1 << partition for partition, owner in enumerate(view.partitions) if owner.node_id in ids)

    def _usable_link(self, node_id: int) -> NodeLink | None:
        link = self._links.get(node_id)
        return link if link is not None and link.is_usable else None

    @property
    def job_heads(self) -> JobHeads:
        """Reads jobs of all nodes."""
        return self._store

    @property
    def lease_seconds(self) -> float:
        """How long a node may be silent until others take its partitions."""
        return self._store.partitions.lease_seconds

    async def store_batch(self, batch: int) -> None:
        """Store the changes up to this batch; raises StorageError."""
        commits = self._hub.commits
        await asyncio.sleep(0)  # until the turn with these changes has ended
        while self._hub.engine.stored_batch < batch:
            if commits.storage_error is not None:
                raise commits.storage_error
            commits.start()
            await commits.wait()

    async def take_schedules(self) -> None:
        """Take the schedules of this node's functions that other nodes have changed so that they are this node's.

        Raises StorageError.
        """
        async with self._changing:
            hub, engine = self._hub, self._hub.engine
            hub.begin_turn()
            await self._store_changes()
            changes = self._store.schedule_changes
            found = await self._store.read_schedules()
            hub.begin_turn()
            if engine.changed_schedules or self._store.schedule_changes != changes:
                return  # one of them may have been removed meanwhile; it is looked again
            given = [
                schedule
                for schedule in found
                if schedule.name not in engine.schedules and self.relay.is_ours(schedule.function_name)
            ]
            if given and not self._is_leaving:
                await hub.adopt(Snapshot(next_job_id=0, jobs=[], schedules=given, has_all_unsuccessful=False))

    async def find_schedule_function(self, name: bytes) -> bytes | None:
        """The function of a stored schedule, whichever node owns it."""
        return await self._store.find_schedule_function(name)

    def describe(self) -> list[NodeAnswer]:
        """All nodes of the cluster, as the verb `nodes` lists them."""
        view = self._view
        if view is None:
            return []
        now_s = time.monotonic()
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(view.partitions):
            if owner.node_id != FREE:
                owned.setdefault(owner.node_id, []).append(partition)
        versions = {node_id: (address, version) for node_id, _, address, version in self._addresses}
        rows: list[NodeAnswer] = []
        for node in sorted(view.nodes, key=lambda node: node.name):
            silent_s = self._watch.silent_seconds(node, now_s)
            address, version = versions.get(node.id, ("", ""))
            is_gone = silent_s > GONE_LEASES * node.lease_seconds
            rows.append(
                {
                    "name": node.name,
                    "address": address,
                    "role": "gone" if is_gone else "leaving" if node.is_leaving else "owner",
                    "version": version,
                    "silent_seconds": round(silent_s, 1),
                    "partitions": len(owned.get(node.id, ())),
                    "placed": placed_in(owned.get(node.id, ()), self.relay.overrides),
                }
            )
        return rows
