"""The load generators: building them, running them, and reading what they found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.servers import BUILD, BenchError, Peer, Server, running
from switchgear.bench.results import Cell, Reading

HERE = Path(__file__).resolve().parent
SHARED = ("blast.c", "blast.h")
LIMIT_SECONDS = 120
BYTES_PER_JOB = "bytes per queued job"


@dataclass(frozen=True)
class Load:
    """What a generator is asked to do."""

    workload: str
    jobs: int
    outstanding: int = 1
    clients: int = 64
    workers: int = 64
    payload_bytes: int = 100
    more: tuple[str, ...] = ()
    limit_seconds: int = LIMIT_SECONDS

    def command(self, server: Server) -> list[str]:
        words = ["--port", server.port, "--jobs", self.jobs, "--outstanding", self.outstanding]
        words += ["--clients", self.clients, "--workers", self.workers, "--payload", self.payload_bytes]
        words += ["--limit", self.limit_seconds, *self.more]
        for process_id in server.process_ids:
            words += ["--pid", process_id]
        if server.peer.credits:
            words += ["--push", server.peer.credits]
        return [str(word) for word in words] + [self.workload]

    def at(self, peer: Peer) -> Load:
        """Where jobs are pushed, fewer workers take as many at a time as all the others do, one each."""
        return replace(self, workers=max(1, self.workers // peer.credits)) if peer.credits else self


def build(name: str, folder: Path = BUILD) -> Path:
    """The program; compiled anew if its source has changed."""
    program = folder / name
    sources = [HERE / f"{name}.c", *(HERE / each for each in SHARED)]
    if program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return program
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BenchError("there is no C compiler; on Debian: scripts/install-packages gcc libc6-dev")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:  # whole or not at all: others may build it just now
        made = Path(place) / name
        command = [
            compiler,
            "-O2",
            "-Wall",
            "-Wextra",
            "-o",
            str(made),
            *(str(each) for each in sources if each.suffix == ".c"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise BenchError(f"{name} cannot be compiled:\n{result.stderr}")
        made.replace(program)
    return program


def blast(server: Server, load: Load) -> dict[str, Any]:
    """What the generator printed, which is true also if something went wrong: then `fault` says what."""
    program = build("beanblast" if server.peer.program == "beanstalkd" else "gearblast")
    command = [str(program), *load.command(server)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=load.limit_seconds + 60)
    if done.returncode not in (0, 1):
        raise BenchError(done.stderr.strip() or f"{program.name} ended with status {done.returncode}")
    raw: dict[str, Any] = json.loads(done.stdout)
    return raw


def reading_of(raw: dict[str, Any], fault: str = "") -> Reading:
    """The figures of one timed part."""
    notes = {
        "generator cpu %": round(raw["generator_cpu_share"] * 100, 1),
        "other cpu %": round(raw.get("other_cpu_share", 0) * 100, 1),
    }
    if "max_us" in raw:
        notes["longest us"] = raw["max_us"]
    return Reading(
        jobs=raw["jobs"],
        seconds=raw["seconds"],
        cpu_us=raw["server_cpu_us_per_job"],
        p50_us=raw.get("p50_us"),
        p99_us=raw.get("p99_us"),
        memory_bytes=raw["server_rss_after_kb"] * 1024,
        notes=notes,
        fault=fault or raw.get("fault", ""),
    )


def measure(peer: Peer, load: Load) -> Reading:
    with running(peer) as server:
        return reading_of(blast(server, load))


def cell(group: str, workload: str, peer: Peer, load: Load, rounds: int = 3, judged_by: str = "cpu_us") -> Cell:
    suited = load.at(peer)
    settings = peer.settings
    if peer.credits:
        noun = "worker" if suited.workers == 1 else "workers"
        settings += f"; {suited.workers} {noun} with {peer.credits} credits each"
    return Cell(group, workload, peer.name, settings, partial(measure, peer, suited), rounds, judged_by=judged_by)
