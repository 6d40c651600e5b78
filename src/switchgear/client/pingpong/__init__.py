"""A worker and a client for PING/PONG brokers."""

from switchgear.client.pingpong.aio import AsyncPingPongWorker
from switchgear.client.pingpong.client import PingPongClient
from switchgear.client.pingpong.worker import PingPongWorker
from switchgear.client.pingpong.worker_protocol import PingPongWorkerProtocol
from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["AsyncPingPongWorker", "CurveKeys", "PingPongClient", "PingPongWorker", "PingPongWorkerProtocol"]
