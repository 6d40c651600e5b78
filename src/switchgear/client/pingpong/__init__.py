"""A worker and a client for PING/PONG brokers: ours, and any other that follows the document."""

from switchgear.client.pingpong.client import PingPongClient
from switchgear.client.pingpong.dialogue import WorkerDialogue
from switchgear.client.pingpong.worker import PingPongWorker
from switchgear.client.zeromq import CurveKeys

__all__ = ["CurveKeys", "PingPongClient", "PingPongWorker", "WorkerDialogue"]
