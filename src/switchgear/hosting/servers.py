"""`WmpManager`, `PingPongBroker`, `DworkHub` and `GearMonkeyServer`: servers for the workers of one protocol.

They differ in how a program says which job it wants; the rest is `HostedServer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from switchgear.client.gearman.pending_requests import SubscribeRequest
from switchgear.client.gearman.submit_request import ExtendedOptions
from switchgear.config import ListenUrl
from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused, ServerRefused
from switchgear.hosting.hosted_job import HostedJob
from switchgear.hosting.hosted_server import HostedServer
from switchgear.protocols.dwork.create_requests import provide_unsuccessful
from switchgear.protocols.dwork.messages import Task
from switchgear.protocols.pending_read import Step

__all__ = ["DworkHub", "GearMonkeyServer", "PingPongBroker", "WmpManager"]


class HostedJobOptions(ExtendedOptions, total=False):
    """The options of `submit`: those of `Client.submit`."""

    unique: str | bytes
    priority: str
    at: float | None
    expires: float | None
    timeout: float
    attempts_limit: int | None
    after: Iterable[HostedJob | str]
    name: str


class WmpManager(HostedServer):
    """A WMP manager: gives jobs to the workers and devices that connect to it.

    with WmpManager() as manager:
        print(manager.submit("shout", b"hello").result())
    """

    scheme = "wmp"

    def submit(self, role: str, payload: bytes = b"", **options: Unpack[HostedJobOptions]) -> HostedJob:
        """Submit a job for workers with this role.  See `HostedServer.submit_job` for the options."""
        return self.submit_job(role, payload, **options)


class PingPongBroker(HostedServer):
    """A PING/PONG broker: gives each job to one of the idle workers.

    with PingPongBroker() as broker:
        print(broker.submit(b"hello").result())
    """

    scheme = "pingpong"

    def submit(self, job: bytes, **options: Unpack[HostedJobOptions]) -> HostedJob:
        """Submit a job.  See `HostedServer.submit_job` for the options."""
        return self.submit_job(self._url.text("function"), job, **options)

    @property
    def clients_address(self) -> str:
        """The address at which clients connect."""
        url = ListenUrl.parse(self.address)
        return _tcp(url.host, url.port)

    @property
    def workers_address(self) -> str:
        """The address at which workers connect."""
        url = ListenUrl.parse(self.address)
        return _tcp(url.host, int(url.option("workers")))


class GearMonkeyServer(HostedServer):
    """A server in the place of GearMonkey's Redis: its workers and clients connect with any Redis library.

    with GearMonkeyServer() as server:
        print(server.submit("shout", b"hello").result())
    """

    scheme = "gearmonkey"

    def submit(self, function: str, input: bytes = b"", **options: Unpack[HostedJobOptions]) -> HostedJob:
        """Submit a job.  See `HostedServer.submit_job` for the options."""
        return self.submit_job(function, input, **options)


class DworkHub(HostedServer):
    """A dwork hub: gives tasks, which wait for each other, to the workers that steal them.

    with DworkHub() as hub:
        hub.submit("link", after=["compile"]).result()
    """

    scheme = "dwork"

    def submit(self, name: str, after: str | Iterable[str] = ()) -> HostedJob:
        """Create a task, which may start when those that `after` names are done.

        It is a Create of dwork.  A task that exists already is joined, and waits for `after` too; one that failed is
        tried again; and a name in `after` that no task has counts as done.  The result of a task is empty.
        """
        predecessors = tuple(each.encode() for each in ([after] if isinstance(after, str) else after))
        if not name:
            raise ValueError("a task has a name")
        job = HostedJob(self, name)
        task = Task(name.encode(), predecessors=predecessors)
        self._call(lambda: self._service.hub.work_off(self._create(task, job)), job.fail)
        return job

    def _create(self, task: Task, job: HostedJob) -> Iterator[Step]:
        """In the server's thread: create a task, and subscribe to it."""
        engine = self._service.engine
        graph = engine.new_graph(joins=True, is_long=True)  # a long one may be described over several turns
        while not graph.begin():
            yield False
        try:
            session = self._connection.session
            yield from provide_unsuccessful(self._service.hub, graph, [task])
            engine.speaker = session  # whose answers wait until the task is stored
            function = engine.function_named(self._url.text("function").encode())
            template = graph.template(function, SubmitOptions())
            graph.add(template, task.name, task.name, (), task.predecessors)
            for steps in (graph.check(), graph.apply()):
                for _ in steps:
                    pass
            for existing in graph.existing:  # and until what others have just created is
                engine.promise(existing)
        except Refused as refused:
            job.fail(ServerRefused(refused.reason, str(refused)))
            return
        except Exception as error:  # a defect must not let somebody wait for ever
            job.fail(error)
            raise
        finally:
            engine.speaker = None
            graph.end()
        created = engine.named(task.name)
        assert created is not None
        self._watch(self._service.operations.context.handle(created.id), job)

    def _watch(self, handle: str, job: HostedJob) -> None:
        watching = SubscribeRequest(handle, job.subscriber)
        watching.future.add_done_callback(lambda answer: self._on_watched(answer, handle, job))
        self._connection.request(watching)

    @staticmethod
    def _on_watched(answer: Any, handle: str, job: HostedJob) -> None:
        error = answer.exception()
        if error is not None:
            job.fail(error)
        else:
            job.accepted.set_result(handle)


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
