"""Payloads and results that are compressed, encrypted or stored elsewhere, on their way from a program to a worker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear import App, Job, JobGroup, chain, group
from switchgear.app.payloads.blobs import BlobStore, DirectoryBlobs, blob_name
from switchgear.app.payloads.codec import PayloadCodec
from switchgear.app.payloads.encryption import new_payload_key
from switchgear.app.payloads.envelope import MAGIC, Envelope, EnvelopeHeader, is_envelope
from switchgear.app.payloads.postgres_blobs import PostgresBlobs
from switchgear.app.payloads.s3_blobs import S3Blobs
from switchgear.errors import ConfigError, ResultError, TaskFailed
from switchgear.testing import in_memory
from tests.app.harness import url_of
from tests.app.worker.harness import working
from tests.support.servers import running_switchgear

KEYS = {"new": new_payload_key(), "old": new_payload_key()}
TEXT = "the same words again and again " * 1000


def app_with(payloads: PayloadCodec | None) -> App:
    app = App("gearman://127.0.0.1:1", payloads=payloads)

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    @app.task(name="echo_async")
    async def echo_async(text: str) -> str:
        return text

    @app.task(name="join")
    def join(texts: list[str]) -> str:
        return "".join(texts)

    @app.task(name="raw")
    def raw(data: bytes) -> bytes:
        return data

    return app


@pytest.fixture(params=["zstd", "zlib", "encrypted", "blobs", "everything"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadCodec:
    match request.param:
        case "encrypted":
            return PayloadCodec(keys=KEYS)
        case "blobs":
            return PayloadCodec(blobs=DirectoryBlobs(tmp_path), blobs_from=100)
        case "everything":
            return PayloadCodec(compress_from=10, keys=KEYS, blobs=DirectoryBlobs(tmp_path), blobs_from=100)
        case name:
            return PayloadCodec(compress_from=10, compression=name)


def payload_of(app: App, handle: str) -> Any:
    return app.control("job", handle=handle)["payload"]


# --- from program to worker and back ---


def test_tasks_know_nothing_of_it(payloads: PayloadCodec) -> None:
    app = app_with(payloads)
    with in_memory(app):
        for name in ("echo", "echo_async"):
            assert app.tasks[name].submit(TEXT).result() == TEXT
        job = app.tasks["echo"].submit(TEXT)
        assert TEXT[:50] not in json.dumps(payload_of(app, job.handle))
        assert app.job(job.handle).result() == TEXT
        assert app.tasks["raw"].submit(TEXT.encode()).result() == TEXT.encode()
        assert list(app.tasks["echo"].submit_many([TEXT, "short"]).results()) == [TEXT, "short"]


async def _results(app: App) -> str:
    job = await app.tasks["echo_async"].submit_async(TEXT)
    text: str = await job
    return text


def test_with_asyncio(payloads: PayloadCodec) -> None:
    app = app_with(payloads)

    async def main() -> str:
        async with in_memory(app):
            return await _results(app)

    assert asyncio.run(main()) == TEXT


def test_results_are_arguments_of_other_jobs(payloads: PayloadCodec) -> None:
    app = app_with(payloads)
    echo, join = app.tasks["echo"], app.tasks["join"]
    with in_memory(app):
        first, last = chain(group(echo.s("a" * 500), echo.s("b" * 500)), join.s()).submit_all()
        assert isinstance(first, JobGroup)
        assert isinstance(last, Job)
        assert last.result() == "a" * 500 + "b" * 500
        assert "aaaa" not in json.dumps(payload_of(app, first.handles[0]))


def test_a_worker_of_a_server_reads_them(tmp_path: Path) -> None:
    payloads = PayloadCodec(compress_from=10, keys=KEYS, blobs=DirectoryBlobs(tmp_path), blobs_from=100)
    app = app_with(payloads)
    with running_switchgear() as server:
        app.use_locations(App(url_of(server)).locations)
        with working(server, "echo join", app=app, processes=None) as crew, app:
            assert crew.run("echo", TEXT) == TEXT
            job = chain(group(app.tasks["echo"].s(TEXT), app.tasks["echo"].s("x")), app.tasks["join"].s()).submit()
            assert job.result(30) == TEXT + "x"


def test_small_ones_stay_as_they_are() -> None:
    app = app_with(PayloadCodec(compress_from=1000))
    with in_memory(app):
        assert payload_of(app, app.tasks["echo"].submit("short").handle) == '{"text":"short"}'


def test_what_does_not_shrink_is_not_compressed() -> None:
    noise = os.urandom(5000)
    assert PayloadCodec(compress_from=10).wrap(noise, "f", []) == noise


# --- what cannot be read ---


def test_another_program_without_the_key() -> None:
    app = app_with(PayloadCodec(keys=KEYS))
    with in_memory(app):
        job = app.tasks["echo"].submit(TEXT)
        app.payloads = None
        with pytest.raises(ResultError, match="the key 'new', which this app does not have"):
            job.result()
        app.payloads = PayloadCodec(keys=KEYS)
    stranger = app_with(None)
    wrapped = PayloadCodec(keys=KEYS).wrap(b'{"text":"x"}', "raw", [])
    with in_memory(stranger), pytest.raises(TaskFailed, match="encrypted with the key 'new'"):
        stranger.tasks["raw"].submit(wrapped).result()


def test_keys_are_replaced_one_after_the_other() -> None:
    old = PayloadCodec(keys={"old": KEYS["old"]}).wrap(b"secret", "f", [])
    assert PayloadCodec(keys=KEYS).unwrap(old, "f") == b"secret"
    assert b"secret" not in old
    with pytest.raises(ValueError, match="encrypted for 'f', not for 'g'"):
        PayloadCodec(keys=KEYS).unwrap(old, "g")
    with pytest.raises(ValueError, match="was changed"):
        PayloadCodec(keys=KEYS).unwrap(old[:-1] + bytes([old[-1] ^ 1]), "f")


def test_a_bomb_is_refused_by_its_size() -> None:
    bomb = PayloadCodec(compress_from=10).wrap(b"\0" * 10_000_000, "f", [])
    assert len(bomb) < 10_000
    with pytest.raises(ValueError, match="are the most that is read"):
        PayloadCodec(most_bytes=1_000_000).unwrap(bomb, "f")
    header = Envelope.decode(bomb).header
    lying = Envelope(EnvelopeHeader(5, compression=header.compression), Envelope.decode(bomb).body).encode()
    with pytest.raises(ValueError, match="its header says 5"):
        PayloadCodec().unwrap(lying, "f")


@pytest.mark.parametrize("size", [-1, -2, -(2**40)])
def test_a_bomb_of_negative_size_is_not_decompressed(size: int) -> None:
    """To a decompressor a limit of 0 or -1 means none."""
    for name in ("zlib", "zstd"):
        body = Envelope.decode(PayloadCodec(compress_from=10, compression=name).wrap(bytes(100_000), "f", [])).body
        with pytest.raises(ValueError, match="unreadable header"):
            PayloadCodec(most_bytes=1_000).unwrap(Envelope(EnvelopeHeader(size, compression=name), body).encode(), "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        PayloadCodec().unwrap(MAGIC + data, "f")


@given(st.binary(max_size=3000), st.lists(st.text(max_size=5), max_size=3))
def test_what_was_wrapped_is_unwrapped(data: bytes, references: list[str]) -> None:
    for payloads in (
        PayloadCodec(compress_from=0, compression="zlib"),
        PayloadCodec(compress_from=0),
        PayloadCodec(keys=KEYS),
    ):
        wrapped = payloads.wrap(data, "f", references)
        assert payloads.unwrap(wrapped, "f") == data
        if is_envelope(wrapped):
            assert Envelope.decode(wrapped).header.references == references


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PayloadCodec(compress_from=1, compression="lzma"), "zstd"),
        (lambda: PayloadCodec(compress_from=-1), "number of bytes"),
        (lambda: PayloadCodec(blobs="blobs"), "DirectoryBlobs"),  # type: ignore[arg-type]
        (lambda: PayloadCodec(keys={}), "new_payload_key"),
        (lambda: PayloadCodec(keys={"k": "short"}), "32 bytes"),
    ],
)
def test_mistakes_show_where_they_are_made(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


# --- blob stores ---


@pytest.fixture(params=["directory", "s3", "postgres"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    match request.param:
        case "directory":
            yield DirectoryBlobs(tmp_path / "blobs")
        case "s3":
            yield request.getfixturevalue("s3_blobs")
        case _:
            store = PostgresBlobs(request.getfixturevalue("postgres").new_url())
            yield store
            store.close()


@pytest.fixture(scope="module")
def s3_blobs() -> Iterator[S3Blobs]:
    """A bucket of moto's server, which speaks S3's HTTP interface: no S3 can be reached from a test."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options: dict[str, Any] = {
        "endpoint_url": f"http://{host}:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    boto3.client("s3", **options).create_bucket(Bucket="jobs")
    yield S3Blobs("jobs", **options)
    server.stop()


def test_a_blob_store_keeps_what_it_was_given(blobs: BlobStore) -> None:
    data = os.urandom(100_000)
    name = blob_name(data)
    with pytest.raises(KeyError):
        blobs.get(name)
    blobs.put(name, data)
    blobs.put(name, data)
    assert blobs.get(name) == data
    assert blobs.delete_older(3600) == 0
    assert blobs.get(name) == data
    assert blobs.delete_older(-10) == 1
    with pytest.raises(KeyError):
        blobs.get(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a" * 63, "G" * 64])
def test_names_of_strangers_are_no_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyError):
        DirectoryBlobs(tmp_path).get(name)


def test_a_blob_that_is_gone_or_damaged(tmp_path: Path) -> None:
    payloads = PayloadCodec(blobs=DirectoryBlobs(tmp_path), blobs_from=10)
    wrapped = payloads.wrap(b"x" * 100, "f", [])
    (path,) = tmp_path.glob("??/*")
    path.write_bytes(b"y" * 100)
    with pytest.raises(ValueError, match="damaged"):
        payloads.unwrap(wrapped, "f")
    path.unlink()
    with pytest.raises(ValueError, match="not in the blob store"):
        payloads.unwrap(wrapped, "f")
    with pytest.raises(ValueError, match="this app has none"):
        PayloadCodec().unwrap(wrapped, "f")


def test_an_app_takes_no_other_object_for_a_codec() -> None:
    with pytest.raises(ConfigError, match=r"payloads is a PayloadCodec, not \{'zstd'\}"):
        App("gearman://127.0.0.1:1", payloads={"zstd"})  # type: ignore[arg-type]


def test_a_reader_without_the_package_of_a_compression_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = PayloadCodec(compress_from=1, compression="zstd").wrap(b"a" * 1000, "f", [])
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="the payload cannot be decompressed: zstd needs a package: pip install"):
        PayloadCodec().unwrap(wrapped, "f")
