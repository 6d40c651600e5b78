"""Switchgear beside gearmand on this machine: builds the load generator, runs every peer, prints a table.

    .venv/bin/python bench/run.py            everything, three rounds, a few minutes
    .venv/bin/python bench/run.py --quick    one round with fewer jobs, under a minute

What the figures mean, and what they do not, is in README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
SOURCE = HERE / "gearblast.c"
GENERATOR = BUILD / "gearblast"
TREE = HERE.parent / "src"

READY_SECONDS = 15.0
STOP_SECONDS = 10.0
RUN_SECONDS = 90  # for one cell of the table, filling included


class BenchError(Exception):
    """Something is missing or does not work, so that there is nothing to compare."""


# --------------------------------------------------------------------------------------------------- peers


@dataclass(frozen=True)
class Peer:
    """A server under test. Started anew, with an empty queue, for every single measurement."""

    key: str
    what: str
    durable: bool
    command: Callable[[int, Path], list[str]]

    @property
    def is_gearmand(self) -> bool:
        return self.key.startswith("gearmand")


def _gearmand(*settings: str) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        return [
            find_gearmand(),
            "--listen=127.0.0.1",
            f"--port={port}",
            "--log-file=stderr",
            f"--pid-file={folder / 'gearmand.pid'}",
            *(setting.replace("{folder}", str(folder)) for setting in settings),
        ]

    return command


def _switchgear(store: str) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        listen = ["--listen", f"gearman://127.0.0.1:{port}"]
        where = ["--store", store.replace("{folder}", str(folder))]
        return [sys.executable, "-m", "switchgear", "serve", *listen, *where]

    return command


PEERS = (
    Peer("gearmand", "as shipped (4 I/O threads, 991 hash buckets)", False, _gearmand("-t", "4")),
    Peer(
        "gearmand-tuned",
        "at its best (no I/O threads, 200003 hash buckets)",
        False,
        _gearmand("-t", "0", "--hashtable-buckets=200003"),
    ),
    Peer("switchgear", "queue in memory", False, _switchgear("memory:")),
    Peer(
        "gearmand-sqlite",
        "its SQLite queue",
        True,
        _gearmand("-q", "libsqlite3", "--libsqlite3-db={folder}/gearmand.db"),
    ),
    Peer("switchgear-sqlite", "its SQLite store, full sync", True, _switchgear("sqlite:{folder}/switchgear.db")),
)


def find_gearmand() -> str:
    path = shutil.which("gearmand", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        raise BenchError("gearmand is not installed; on Debian: apt-get install gearman-job-server")
    return path


# ----------------------------------------------------------------------------------------------- workloads


@dataclass(frozen=True)
class Workload:
    group: str  # what --only selects
    name: str  # in the table
    mode: str  # gearblast's word for it
    outstanding: int
    jobs: int
    quick_jobs: int
    durable: bool = False
    slow_jobs: int = 0  # for gearmand's SQLite queue, which does a few hundred jobs a second
    slow_quick_jobs: int = 0

    def count(self, peer: Peer, quick: bool) -> int:
        if peer.key == "gearmand-sqlite":
            return self.slow_quick_jobs if quick else self.slow_jobs
        return self.quick_jobs if quick else self.jobs


CONNECTIONS = 64

WORKLOADS = (
    Workload("background", "background x1", "background", 1, 100_000, 50_000),
    Workload("background", "background x32", "background", 32, 100_000, 50_000),
    Workload("drain", "drain x1", "drain", 1, 100_000, 50_000),
    Workload("drain", "drain x32", "drain", 32, 100_000, 50_000),
    Workload("foreground", "foreground x1", "foreground", 1, 50_000, 15_000),
    Workload("foreground", "foreground x32", "foreground", 32, 100_000, 30_000),
    Workload("durable", "durable background x1", "background", 1, 20_000, 10_000, True, 2_000, 800),
    Workload("durable", "durable background x32", "background", 32, 50_000, 20_000, True, 2_000, 800),
    Workload("durable", "durable drain x1", "drain", 1, 20_000, 10_000, True, 2_000, 800),
)
GROUPS = tuple(dict.fromkeys(workload.group for workload in WORKLOADS))


@dataclass(frozen=True)
class Reading:
    """One run of the generator."""

    ok: bool
    fault: str
    jobs: int = 0
    jobs_per_second: float = 0.0
    cpu_us: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    generator_share: float = 0.0
    other_share: float = 0.0
    rss_mb: float = 0.0
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass
class Cell:
    """All rounds of one workload against one peer."""

    workload: Workload
    peer: Peer
    readings: list[Reading] = field(default_factory=list)

    @property
    def fault(self) -> str:
        return next((reading.fault for reading in self.readings if not reading.ok), "")

    @property
    def best(self) -> Reading | None:
        good = [reading for reading in self.readings if reading.ok]
        return min(good, key=lambda reading: reading.cpu_us, default=None)

    @property
    def spread(self) -> float:
        """How much dearer the worst round was than the best one, as a part of the best."""
        costs = [reading.cpu_us for reading in self.readings if reading.ok]
        return max(costs) / min(costs) - 1 if costs and min(costs) > 0 else 0.0


# -------------------------------------------------------------------------------------------------- servers


@dataclass(frozen=True)
class Server:
    port: int
    pids: list[int]
    version: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def session_members(leader: int) -> list[int]:
    """The processes of a session: a server and whatever it has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # gone in the meantime
        fields = text[text.rindex(")") + 2 :].split()
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def ask_version(port: int) -> str | None:
    """The answer to the text command ``version``; None while there is no server."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as link:
            link.sendall(b"version\n")
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < 1000:
                piece = link.recv(1000)
                if not piece:
                    return None
                answer += piece
    except OSError:
        return None
    return answer.decode("utf-8", "replace").strip().removeprefix("OK").strip()


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-lines:])


def wait_until_ready(process: subprocess.Popen[bytes], peer: Peer, port: int, log: Path) -> str:
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise BenchError(f"{peer.key} ended at once with status {process.returncode}:\n{tail(log)}")
        version = ask_version(port)
        if version is not None:
            return version
        time.sleep(0.03)
    raise BenchError(f"{peer.key} did not answer within {READY_SECONDS:.0f} s:\n{tail(log)}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and everything in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"note: process {process.pid} had to be killed", file=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def running(peer: Peer, parent: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix=f"{peer.key}-", dir=parent) as name:
        folder = Path(name)
        log = folder / "log"
        port = free_port()
        command = peer.command(port, folder)
        environment = dict(os.environ)
        if not peer.is_gearmand:  # measure this working copy, whatever is installed
            path = [str(TREE), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            version = wait_until_ready(process, peer, port, log)
            yield Server(port, session_members(process.pid), version)
        finally:
            stop(process)


# ---------------------------------------------------------------------------------------------- measurement


def build_generator() -> None:
    BUILD.mkdir(exist_ok=True)
    if GENERATOR.exists() and GENERATOR.stat().st_mtime > SOURCE.stat().st_mtime:
        return
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BenchError("there is no C compiler; on Debian: apt-get install gcc libc6-dev")
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(GENERATOR), str(SOURCE)], check=True)


def measure(workload: Workload, peer: Peer, jobs: int, parent: Path) -> Reading:
    with running(peer, parent) as server:
        command = [str(GENERATOR), "--port", str(server.port), "--jobs", str(jobs)]
        command += ["--clients", str(CONNECTIONS), "--workers", str(CONNECTIONS)]
        command += ["--outstanding", str(workload.outstanding), "--limit", str(RUN_SECONDS)]
        for pid in server.pids:
            command += ["--pid", str(pid)]
        done = subprocess.run(
            [*command, workload.mode], capture_output=True, text=True, check=False, timeout=RUN_SECONDS + 30
        )
    if done.returncode not in (0, 1):
        return Reading(False, done.stderr.strip() or f"gearblast ended with status {done.returncode}")
    raw: dict[str, Any] = json.loads(done.stdout)
    return Reading(
        ok=bool(raw["ok"]),
        fault=str(raw["fault"]),
        jobs=int(raw["jobs"]),
        jobs_per_second=float(raw["jobs_per_second"]),
        cpu_us=float(raw["server_cpu_us_per_job"]),
        p50_us=float(raw["p50_us"]),
        p99_us=float(raw["p99_us"]),
        generator_share=float(raw["generator_cpu_share"]),
        other_share=float(raw["other_cpu_share"]),
        rss_mb=float(raw["server_rss_after_kb"]) / 1024,
        raw=raw,
    )


def plan(groups: Sequence[str], peers: Sequence[Peer]) -> list[Cell]:
    return [
        Cell(workload, peer)
        for workload in WORKLOADS
        if workload.group in groups
        for peer in peers
        if peer.durable == workload.durable
    ]


def check_peers(cells: Sequence[Cell], parent: Path) -> dict[str, str]:
    """Starts every peer that is needed once, before the first measurement; gives their versions."""
    versions = {}
    for peer in dict.fromkeys(cell.peer for cell in cells):
        with running(peer, parent) as server:
            versions[peer.key] = server.version
    return versions


# -------------------------------------------------------------------------------------------------- reports


def machine(folder: Path) -> dict[str, str]:
    model = "unknown CPU"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    ask = ["stat", "-f", "-c", "%T", str(folder)]
    kind = subprocess.run(ask, capture_output=True, text=True, check=False)
    return {
        "cpu": f"{model}, {os.cpu_count()} cores",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
        "file system of the durable queues": kind.stdout.strip() or "unknown",
    }


HEAD = (
    f"{'workload':<22} {'peer':<17} {'jobs/s':>9} {'CPU us/job':>10} {'spread':>7} "
    f"{'p50 us':>8} {'p99 us':>9} {'gen':>5} {'other':>5} {'RSS MB':>6} {'CPU ratio':>9}"
)


def reference_cost(cell: Cell, cells: Sequence[Cell]) -> float | None:
    """The least CPU that any gearmand needed for a job of this workload: gearmand at its best."""
    rivals = [other.best for other in cells if other.workload is cell.workload and other.peer.is_gearmand]
    return min((best.cpu_us for best in rivals if best is not None), default=None)


def row(cell: Cell, cells: Sequence[Cell]) -> str:
    best = cell.best
    start = f"{cell.workload.name:<22} {cell.peer.key:<17}"
    if best is None or cell.fault:
        return f"{start} FAILED: {cell.fault or 'not run'}"
    base = reference_cost(cell, cells)
    ratio = f"{best.cpu_us / base:9.2f}" if base else f"{'-':>9}"
    spread = f"+{cell.spread:.0%}" if len(cell.readings) > 1 else "-"
    generator = f"{best.generator_share:.0%}"
    return (
        f"{start} {best.jobs_per_second:9,.0f} {best.cpu_us:10.2f} {spread:>7} {best.p50_us:8,.0f} "
        f"{best.p99_us:9,.0f} {generator:>5} {best.other_share:5.0%} {best.rss_mb:6.0f} {ratio}"
    )


def print_settings(
    cells: Sequence[Cell], versions: dict[str, str], environment: dict[str, str], options: argparse.Namespace
) -> None:
    print(f"Machine: {'; '.join(f'{name} {value}' for name, value in environment.items())}")
    print("Peers:")
    for peer in dict.fromkeys(cell.peer for cell in cells):
        command = [Path(word).name if word.startswith("/") else word for word in peer.command(0, Path("DIR"))]
        print(f"  {peer.key:<17} {versions[peer.key]:<10} {peer.what}: {' '.join(command)}")
    counts: dict[str, dict[str, None]] = {}
    for cell in cells:
        jobs = f"{cell.workload.count(cell.peer, options.quick):,}"
        counts.setdefault(cell.workload.name, {})[jobs] = None
    print("Jobs: " + "; ".join(f"{name} {' / '.join(jobs)}" for name, jobs in counts.items()))
    print(
        f"Settings: {CONNECTIONS} clients, {CONNECTIONS} workers, 100-byte payload, own 36-byte unique ids; "
        f"rounds: {options.rounds}, interleaved, a fresh server each time\n"
    )


def print_table(cells: Sequence[Cell]) -> None:
    print(HEAD)
    print("-" * len(HEAD))
    previous = None
    for cell in cells:
        if previous is not None and cell.workload is not previous:
            print()
        previous = cell.workload
        print(row(cell, cells))
    print(
        "\nEach row is the round with the least CPU; spread: how much dearer the worst round was.\n"
        "xN: requests that each connection keeps unanswered.\n"
        "gen, other: share of one core used by the generator, and by everything else on this machine.\n"
        "CPU ratio: to the cheapest gearmand of the same workload; under 1 is cheaper than any gearmand.\n"
        "On two shared cores, differences below some 15 % mean nothing."
    )


def as_json(
    cells: Sequence[Cell], versions: dict[str, str], environment: dict[str, str], options: argparse.Namespace
) -> dict[str, Any]:
    rows = []
    for cell in cells:
        best, base = cell.best, reference_cost(cell, cells)
        rows.append(
            {
                "workload": cell.workload.name,
                "peer": cell.peer.key,
                "fault": cell.fault,
                "best": dataclasses.asdict(best)["raw"] if best else None,
                "cpu_spread": round(cell.spread, 4),
                "cpu_ratio": round(best.cpu_us / base, 4) if best and base else None,
                "rounds": [reading.raw for reading in cell.readings],
            }
        )
    return {
        "machine": environment,
        "versions": versions,
        "settings": {"connections": CONNECTIONS, "rounds": options.rounds, "quick": options.quick},
        "rows": rows,
    }


# ----------------------------------------------------------------------------------------------- the command


def words(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        chosen = [word.strip() for word in text.split(",") if word.strip()]
        for word in chosen:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return chosen

    return parse


def count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 20:
        raise argparse.ArgumentTypeError("from 1 to 20")
    return value


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    keys = [peer.key for peer in PEERS]
    parser = argparse.ArgumentParser(description="Switchgear beside gearmand on this machine")
    parser.add_argument("--rounds", type=count, help="rounds, the best of which counts (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="one round with fewer jobs, under a minute")
    parser.add_argument("--only", type=words(GROUPS), default=GROUPS, help=f"some of: {','.join(GROUPS)}")
    parser.add_argument("--peers", type=words(keys), default=keys, help=f"some of: {','.join(keys)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading to FILE")
    parser.add_argument("--dir", type=Path, default=BUILD, help="where the durable queues lie (bench/build)")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 1 if options.quick else 3
    return options


def run_all(cells: Sequence[Cell], options: argparse.Namespace) -> None:
    for number in range(1, options.rounds + 1):
        for cell in cells:
            jobs = cell.workload.count(cell.peer, options.quick)
            reading = measure(cell.workload, cell.peer, jobs, options.dir)
            cell.readings.append(reading)
            outcome = f"{reading.cpu_us:8.2f} us/job" if reading.ok else f"FAILED: {reading.fault}"
            name = f"{cell.workload.name}, {cell.peer.key}"
            print(f"round {number}/{options.rounds}  {name:<42} {outcome}", file=sys.stderr, flush=True)


def _terminated(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    signal.signal(signal.SIGTERM, _terminated)  # so that servers are stopped on the way out
    begun = time.monotonic()
    cells = plan(options.only, [peer for peer in PEERS if peer.key in options.peers])
    if not cells:
        print("nothing to run: none of these peers takes part in these workloads", file=sys.stderr)
        return 2
    try:
        build_generator()
        versions = check_peers(cells, options.dir)
        environment = machine(options.dir)
        print_settings(cells, versions, environment, options)
        run_all(cells, options)
    except (BenchError, OSError, subprocess.SubprocessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print_table(cells)
    print(f"\n{time.monotonic() - begun:.0f} s in all")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(cells, versions, environment, options), indent=1) + "\n")
    return 1 if any(cell.fault for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
