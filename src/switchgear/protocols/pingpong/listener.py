"""`PingPongSessionFactory`: makes the sessions of PING/PONG listeners, one for clients and one for workers."""

from __future__ import annotations

from functools import partial

from switchgear.config import ListenUrl
from switchgear.model import SECOND_US
from switchgear.protocols.pingpong.broker import ClientsSession, PingPongSetup, WorkersSession
from switchgear.protocols.session_factory import ZeromqSessionFactory, ZeromqSocket

__all__ = ["PingPongSessionFactory"]


class PingPongSessionFactory(ZeromqSessionFactory):
    """PING/PONG; each listener serves one function."""

    def sockets_at(self, url: ListenUrl) -> list[ZeromqSocket]:
        setup = PingPongSetup(
            function=url.text("function").encode(),
            expire_us=int(url.seconds("expire") * SECOND_US),
            resend_us=int(url.seconds("resend") * SECOND_US),
        )
        return [
            ZeromqSocket(partial(ClientsSession, setup=setup)),
            ZeromqSocket(partial(WorkersSession, setup=setup), port_option="workers"),
        ]
