"""What programs import from `switchgear` itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import switchgear


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_the_public_names_are_these() -> None:
    assert switchgear.__all__ == [
        "INJECTED",
        "AlreadySubmitted",
        "App",
        "ArgumentError",
        "AsyncClient",
        "AsyncDworkWorker",
        "AsyncGearMonkeyWorker",
        "AsyncPingPongWorker",
        "AsyncWmpWorker",
        "Backoff",
        "BlobStore",
        "Client",
        "ClientError",
        "DirectoryBlobs",
        "DworkHub",
        "DworkWorker",
        "ExtensionRequired",
        "Failure",
        "GearMonkeyServer",
        "GearMonkeyWorker",
        "Graph",
        "Job",
        "JobCancelled",
        "JobExpired",
        "JobFailed",
        "JobGroup",
        "JobLost",
        "JobTimedOut",
        "JobUnknown",
        "Middleware",
        "NotFound",
        "PayloadCodec",
        "PingPongBroker",
        "PingPongWorker",
        "PostgresBlobs",
        "PredecessorFailed",
        "Progress",
        "ResultError",
        "Retry",
        "S3Blobs",
        "ServerRefused",
        "ServerUnreachable",
        "SoftTimeout",
        "SwitchgearError",
        "Task",
        "TaskFailed",
        "TaskSubmission",
        "WmpDevice",
        "WmpManager",
        "WmpWorker",
        "Worker",
        "__version__",
        "chain",
        "chord",
        "current_job",
        "group",
        "new_payload_key",
        "register_type",
        "shared_task",
    ]


@pytest.mark.parametrize("name", switchgear.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(switchgear, name).__doc__
    assert name in dir(switchgear)


def test_importing_costs_little() -> None:
    program = "import sys, switchgear; print([name for name in ('asyncio', 'msgspec', 'zmq') if name in sys.modules])"
    assert run(program) == "[]\n"


def test_an_app_needs_no_server_in_its_process() -> None:
    program = """if True:
        import sys
        from switchgear import App
        app = App("gearman://127.0.0.1")
        @app.task
        def f(a: int) -> int: ...
        print([name for name in sys.modules if name == "zmq" or name.startswith("switchgear.net")])
    """
    assert run(program) == "[]\n"


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'switchgear' has no attribute 'Nonsense'"):
        _ = switchgear.Nonsense  # type: ignore[attr-defined]
