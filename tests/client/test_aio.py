"""The client for asyncio, against real servers; the other side is a worker on a raw socket that does as it is told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from switchgear.client import AsyncClient, AsyncSubmission, JobStatus, Update, UpdateKind
from switchgear.client.gearman.error_codes import UNKNOWN_EXTENSION
from switchgear.errors import ClientError, JobFailed, ServerRefused, ServerUnreachable
from tests.client.background import url_of
from tests.client.test_client import HandWorker
from tests.support.servers import HOST, Server, free_port
from tests.support.wire import Kind

pytestmark = pytest.mark.system

Story = Callable[[AsyncClient], Awaitable[None]]


def play(server: Server, story: Story) -> None:
    async def main() -> None:
        async with AsyncClient(url_of(server)) as client:
            await story(client)

    asyncio.run(main())


@pytest.fixture
def worker(any_server: Server, function: str) -> Iterator[HandWorker]:
    worker = HandWorker(any_server, function)
    yield worker
    worker.wire.close()


def test_the_result_comes_back(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        submission = await client.submit(function, b"\0pay\xffload")
        assert repr(submission) == f"AsyncSubmission({submission.handle!r})"
        handle, payload = worker.grab()
        assert (handle.decode(), payload) == (submission.handle, b"\0pay\xffload")
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"re\0sult")
        assert await submission.wait() == b"re\0sult"
        assert await submission.wait() == b"re\0sult"  # asking again is no mistake

    play(any_server, story)


def test_everything_on_the_way_is_told_in_order(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        submission = await client.submit(function)
        handle, _ = worker.grab()
        worker.wire.send(Kind.WORK_DATA, handle, b"one ")
        worker.wire.send(Kind.WORK_WARNING, handle, b"hot")
        worker.wire.send(Kind.WORK_STATUS, handle, b"3", b"10")
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"two")
        assert [update async for update in submission.updates()] == [
            Update(UpdateKind.DATA, b"one "),
            Update(UpdateKind.WARNING, b"hot"),
            Update(UpdateKind.STATUS, b"", 3, 10),
            Update(UpdateKind.COMPLETE, b"two"),
        ]
        assert [update async for update in submission.updates()] == []

    play(any_server, story)


def test_failures(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        submissions = [await client.submit(function) for _ in range(2)]
        worker.wire.send(Kind.WORK_FAIL, worker.grab()[0])
        worker.wire.send(Kind.WORK_EXCEPTION, worker.grab()[0], b"out of paper")
        with pytest.raises(JobFailed) as caught:
            await submissions[0].wait()
        assert caught.value.error == b""
        with pytest.raises(JobFailed, match="out of paper") as caught:
            await submissions[1].wait()
        assert caught.value.error == b"out of paper"

    play(any_server, story)


def test_giving_up_in_time_and_going_on(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        submission = await client.submit(function)
        handle, _ = worker.grab()
        worker.wire.send(Kind.WORK_DATA, handle, b"one ")
        with pytest.raises(TimeoutError):
            await submission.wait(0.2)
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"two")
        assert await submission.wait() == b"one two"

    play(any_server, story)


def test_many_tasks_use_one_client(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        async def one(number: int) -> bytes:
            submission = await client.submit(function, b"%d" % number)
            return await submission.wait()

        waiting = asyncio.gather(*(one(number) for number in range(5)), client.echo(b"x"))
        await client.echo(b"the jobs are there")
        jobs = [await asyncio.to_thread(worker.grab) for _ in range(5)]
        for handle, payload in reversed(jobs):
            worker.wire.send(Kind.WORK_COMPLETE, handle, payload * 2)
        assert await waiting == [b"00", b"11", b"22", b"33", b"44", b"x"]

    play(any_server, story)


def test_two_submissions_of_one_job_both_hear_all(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        first = await client.submit(function, unique="key")
        second = await client.submit(function, unique="key")
        assert second.handle == first.handle
        handle, _ = worker.grab()
        worker.wire.send(Kind.WORK_DATA, handle, b"data ")
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"end")
        assert [await first.wait(), await second.wait()] == [b"data end"] * 2

    play(any_server, story)


def test_background_jobs(any_server: Server, worker: HandWorker, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        for options in ({}, {"at": time.time() - 5}, {"priority": "high"}):
            given: dict[str, Any] = options
            submission = await client.submit(function, b"bg", background=True, **given)
            assert await client.status(submission.handle) == JobStatus(True, False, 0, 0)
            assert worker.grab()[0].decode() == submission.handle
            with pytest.raises(ClientError, match="is a background job"):
                await submission.wait()
            worker.wire.send(Kind.WORK_COMPLETE, submission.handle.encode(), b"")

    play(any_server, story)


def test_asking(any_server: Server, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        assert await client.echo(b"a\0b") == b"a\0b"
        assert await client.status("H:nowhere:1") == JobStatus(False, False, 0, 0)
        await client.submit(function, background=True)
        assert f"{function}\t1\t0\t0" in await client.admin("status")
        (version,) = await client.admin("version")
        assert version.startswith("OK ")
        with pytest.raises(ServerRefused) as caught:
            await client.admin("nonsense")
        assert caught.value.code == "UNKNOWN_COMMAND"
        with pytest.raises(ValueError, match="one line"):
            await client.admin("status\nversion")
        assert await client.echo(b"still in step") == b"still in step"

    play(any_server, story)


def test_an_answer_nobody_waits_for_is_not_taken_for_another(any_server: Server) -> None:
    async def story(client: AsyncClient) -> None:
        await client.echo(b"connected")
        given_up = asyncio.create_task(client.echo(b"first"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await client.echo(b"second") == b"second"

    play(any_server, story)


def test_extensions(switchgear: Server, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        first = await client.submit(function, background=True, attempts_limit=3)
        second = await client.submit(function, background=True, after=[first.handle])
        told = await client.control("job", handle=second.handle, unused=None)
        assert (told["state"], told["predecessors"]) == ("waiting", [first.handle])
        with pytest.raises(ServerRefused) as caught:
            await client.control("job", handle="H:nowhere:1")
        assert caught.value.code == "JOB_NOT_FOUND"

    play(switchgear, story)


def test_extensions_and_a_server_that_does_not_know_them(gearmand: Server, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        waiting = await client.submit(function)
        for ask in (client.control("server"), client.submit(function, attempts_limit=3)):
            with pytest.raises(ServerRefused, match="does not know the extension packets") as caught:
                await ask
            assert caught.value.code == UNKNOWN_EXTENSION
        with closing(HandWorker(gearmand, function).wire) as wire:
            wire.send(Kind.GRAB_JOB)
            handle = wire.receive_packet().body.partition(b"\0")[0]
            wire.send(Kind.WORK_COMPLETE, handle, b"unharmed")
            assert await waiting.wait() == b"unharmed"

    play(gearmand, story)


def test_a_server_that_is_not_there() -> None:
    async def main() -> None:
        async with AsyncClient(f"gearman://{HOST}:{free_port()}") as client:
            with pytest.raises(ServerUnreachable, match="Connection refused"):
                await client.echo()

    asyncio.run(main())


def test_a_silent_server() -> None:
    async def main() -> None:
        with socket.create_server((HOST, 0)) as listener:
            async with AsyncClient(f"gearman://{HOST}:{listener.getsockname()[1]}", timeout_seconds=0.1) as client:
                with pytest.raises(ServerUnreachable, match=r"did not answer within 0\.1 s"):
                    await client.echo()

    asyncio.run(main())


def test_a_server_that_hangs_up() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(hang_up, HOST, 0)
        async with server, AsyncClient(f"gearman://{HOST}:{server.sockets[0].getsockname()[1]}") as client:
            for _ in range(2):  # each time anew
                with pytest.raises(ServerUnreachable, match=r"closed the connection|was lost"):
                    await client.echo()

    asyncio.run(main())


def test_closing_ends_every_wait(any_server: Server, function: str) -> None:
    async def story(client: AsyncClient) -> None:
        submission = await client.submit(function)
        waiting = asyncio.create_task(submission.wait())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ServerUnreachable, match="the client was closed"):
            await waiting
        assert await client.echo(b"again") == b"again"

    play(any_server, story)


def test_names_are_checked(any_server: Server) -> None:
    async def story(client: AsyncClient) -> None:
        with pytest.raises(ValueError, match="a function cannot contain a NUL byte"):
            await client.submit("a\0b")
        with pytest.raises(ValueError, match="priority is one of"):
            await client.submit("a", priority="urgent")

    play(any_server, story)


def test_a_submission_belongs_to_the_public() -> None:
    assert AsyncSubmission.__doc__
