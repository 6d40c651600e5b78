"""One job through a running server, to show that it works: this program is its client and its worker."""

from __future__ import annotations

import click

from switchgear.client.address import ServerAddress
from switchgear.client.client import Client
from switchgear.client.connection import Connection
from switchgear.errors import SwitchgearError
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["show_demo"]

FUNCTION = "switchgear-demo"
PAYLOAD = b"hello, world"
TIMEOUT_SECONDS = 10.0


def show_demo(url: str) -> None:
    """Submit a job, do it, and print what came back.  A failure is told too, and does no harm to the server."""
    try:
        address = ServerAddress.parse(url)
        with Connection(address.host, address.port) as worker, Client(url) as client:
            worker.send(request(Packet.CAN_DO, FUNCTION.encode()))
            submission = client.submit(FUNCTION, PAYLOAD)
            _do_one_job(worker)
            result = submission.wait(TIMEOUT_SECONDS)
    except (SwitchgearError, TimeoutError) as error:
        click.echo(f"demo: {error}", err=True)
        return
    click.echo(f"demo: job {submission.handle} of {FUNCTION}: {PAYLOAD.decode()!r} came back as {result.decode()!r}")


def _do_one_job(worker: Connection) -> None:
    worker.send(request(Packet.GRAB_JOB))
    kind, body = worker.receive_answer()
    if kind != Packet.JOB_ASSIGN:
        raise SwitchgearError("the server did not hand out the job")
    handle, _, payload = body.split(b"\0", 2)
    worker.send(request(Packet.WORK_COMPLETE, handle, payload[::-1]))
