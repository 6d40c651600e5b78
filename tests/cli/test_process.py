"""The server as a process: user, descriptors, pid file, background."""

from __future__ import annotations

import logging
import os
import pwd
import re
import resource
import signal
import socket
import subprocess
import sys
import syslog
from pathlib import Path
from types import SimpleNamespace

import pytest

from switchgear.cli import process as process_module
from switchgear.cli.process import ProcessOptions, raise_file_descriptors, run_process
from switchgear.errors import ConfigError

SOURCE = str(Path(process_module.__file__).parents[2])

# Serves by waiting for a signal.  The descriptor it inherits closes when it ends, whoever its parent is by then.
DAEMON = """
import os, signal, sys
from switchgear.cli.process import ProcessOptions, run_process
from switchgear.errors import ConfigError

def serve(on_listening):
    if {fails!r}:
        print("the port is taken", file=sys.stderr)
        return 1
    on_listening()
    print("into the void", flush=True)
    assert os.getsid(0) != os.getpid() and os.getppid() != {parent!r}
    signal.sigwait({{signal.SIGTERM}})
    return 0

signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
sys.exit(run_process(ProcessOptions(daemonize=True, pid_file={pid_file!r}), serve))
"""


def python(script: str, *, pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
        pass_fds=pass_fds,
        timeout=30,
    )


def test_a_daemon_listens_before_its_parent_leaves(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    read_end, write_end = os.pipe()
    done = python(DAEMON.format(fails=False, parent=os.getpid(), pid_file=str(pid_file)), pass_fds=(write_end,))
    os.close(write_end)
    # That this returned at all shows that the daemon let go of our pipes.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    daemon = int(pid_file.read_text())
    os.kill(daemon, signal.SIGTERM)
    assert os.read(read_end, 1) == b""  # until the daemon has ended
    os.close(read_end)
    assert not pid_file.exists()


@pytest.mark.system
def test_the_real_server_as_a_daemon(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    log = tmp_path / "log"
    listen = ["-L", "127.0.0.1", "-p", "0"]
    words = ["gearmand", "-d", *listen, "-P", str(pid_file), "-l", str(log), "--verbose=INFO"]
    read_end, write_end = os.pipe()
    done = python(f"from switchgear.cli.main import main\nmain({words!r})", pass_fds=(write_end,))
    os.close(write_end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = re.search(r"127\.0\.0\.1:([0-9]+)", log.read_text())
    assert found is not None
    try:
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as connection:
            connection.sendall(b"getpid\n")
            assert connection.recv(100) == b"OK " + pid_file.read_bytes()
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
    assert os.read(read_end, 1) == b""  # until the daemon has ended
    os.close(read_end)
    assert not pid_file.exists()


def test_a_daemon_that_cannot_start_is_told_by_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    done = python(DAEMON.format(fails=True, parent=os.getpid(), pid_file=str(pid_file)))
    assert (done.returncode, done.stderr) == (1, "the port is taken\n")
    assert not pid_file.exists()


def test_the_pid_file_is_there_while_the_server_listens(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def serve(on_listening: process_module.OnListening) -> int:
        assert not pid_file.exists()
        on_listening()
        assert pid_file.read_text() == f"{os.getpid()}\n"
        return 7

    assert run_process(ProcessOptions(pid_file=str(pid_file)), serve) == 7
    assert not pid_file.exists()


def test_the_pid_file_is_removed_after_an_error_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def serve(on_listening: process_module.OnListening) -> int:
        on_listening()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_process(ProcessOptions(pid_file=str(pid_file)), serve)
    assert not pid_file.exists()


def test_the_pid_file_of_another_is_left_alone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def serve(on_listening: process_module.OnListening) -> int:
        on_listening()
        pid_file.write_text("1\n")
        return 0

    run_process(ProcessOptions(pid_file=str(pid_file)), serve)
    assert pid_file.read_text() == "1\n"


@pytest.mark.parametrize("place", ["missing/pid", "."])
def test_a_pid_file_that_cannot_be_written_is_refused_before_serving(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot write the pid file"):
        run_process(ProcessOptions(pid_file=str(tmp_path / place)), lambda on_listening: pytest.fail("served"))


def test_the_user_is_switched_groups_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=42, pw_gid=43))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "initgroups", lambda *given: calls.append(("initgroups", *given)))
    monkeypatch.setattr(os, "setgid", lambda *given: calls.append(("setgid", *given)))
    monkeypatch.setattr(os, "setuid", lambda *given: calls.append(("setuid", *given)))
    run_process(ProcessOptions(user="gearman"), lambda on_listening: len(calls))
    assert calls == [("initgroups", "gearman", 43), ("setgid", 43), ("setuid", 42)]


def test_only_root_may_become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=42, pw_gid=43))
    with pytest.raises(ConfigError, match="only root can switch to the user gearman"):
        run_process(ProcessOptions(user="gearman"), lambda on_listening: 0)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=1000, pw_gid=1000))
    assert run_process(ProcessOptions(user="myself"), lambda on_listening: 0) == 0


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no user no-such-user"):
        run_process(ProcessOptions(user="no-such-user"), lambda on_listening: 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_the_pid_file_belongs_to_the_new_user(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    place = tmp_path / "run"
    place.mkdir()
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    for directory in (tmp_path, *tmp_path.parents):
        if not os.stat(directory).st_mode & 0o001:
            directory.chmod(0o711)
    done = python(
        "import os\n"
        "from switchgear.cli.process import *\n"
        "def serve(on_listening):\n"
        "    on_listening()\n"
        f"    print(os.getuid(), os.getgid(), os.getgroups(), os.stat({str(place / 'pid')!r}).st_uid)\n"
        "    return 0\n"
        f"run_process(ProcessOptions(user='nobody', pid_file={str(place / 'pid')!r}), serve)\n"
    )
    assert done.stdout == f"{nobody.pw_uid} {nobody.pw_gid} [{nobody.pw_gid}] {nobody.pw_uid}\n", done.stderr
    assert list(place.iterdir()) == []


def test_the_number_of_descriptors_is_set() -> None:
    done = python(
        "import resource\n"
        "from switchgear.cli.process import *\n"
        "run_process(ProcessOptions(file_descriptors=123),\n"
        "            lambda ready: print(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) or 0)\n"
    )
    assert done.stdout == "123\n", done.stderr


def test_too_many_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(what: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(ConfigError, match="cannot allow 10 file descriptors"):
        run_process(ProcessOptions(file_descriptors=10), lambda on_listening: 0)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1000, 4096), (1064, 4096)),
        ((1000, 1030), (1030, 1030)),
        ((2048, 4096), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
        ((1000, resource.RLIM_INFINITY), (1064, resource.RLIM_INFINITY)),
    ],
)
def test_room_for_connections(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, pair: set_to.append(pair))
    raise_file_descriptors(1000)
    assert set_to == ([expected] if expected else [])


def test_the_system_log_hears_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "openlog", lambda *given: None)
    monkeypatch.setattr(syslog, "syslog", lambda priority, text: heard.append((priority, text)))
    logger = logging.getLogger("switchgear")
    before = list(logger.handlers)

    def serve(on_listening: process_module.OnListening) -> int:
        logging.getLogger("switchgear.net").error("job %d is lost", 7)
        logging.getLogger("switchgear").critical("no store")
        logging.getLogger("switchgear").warning("slow")
        return 0

    try:
        run_process(ProcessOptions(syslog=True), serve)
    finally:
        logger.handlers[:] = before
    assert heard == [(syslog.LOG_ERR, "job 7 is lost"), (syslog.LOG_CRIT, "no store"), (syslog.LOG_WARNING, "slow")]
