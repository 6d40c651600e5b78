"""`DworkSessionFactory`: makes the sessions of dwork listeners."""

from __future__ import annotations

from functools import partial

from switchgear.config import ListenUrl
from switchgear.model import SECOND_US
from switchgear.protocols.dwork.session import DworkSession, DworkSetup
from switchgear.protocols.session_factory import ZeromqSessionFactory, ZeromqSocket

__all__ = ["DworkSessionFactory"]


class DworkSessionFactory(ZeromqSessionFactory):
    """dwork; the tasks of a listener are the jobs of one function."""

    def prepare(self, url: ListenUrl) -> None:
        """Set the order of the queue before jobs enter it: tasks that waited for others come first."""
        self.server.engine.function_named(url.text("function").encode()).released_first = True

    def sockets_at(self, url: ListenUrl) -> list[ZeromqSocket]:
        setup = DworkSetup(
            function=url.text("function").encode(),
            lease_us=int(url.seconds("lease") * SECOND_US),
            host=self.server.host_name.encode(),
        )
        return [ZeromqSocket(partial(DworkSession, setup=setup), function=setup.function)]
