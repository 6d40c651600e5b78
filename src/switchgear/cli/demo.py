"""One job from every submitter to every worker through a running server, to show that it works.

Submitters and workers are this program's own, one kind of worker at a time, so that it is known who does what.
Whatever goes wrong is told, and does no harm to the server.
"""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
import time
from collections.abc import Iterable
from typing import Final

import click

from switchgear.cli.demo_addresses import DemoAddresses
from switchgear.cli.demo_submitters import SUBMITTERS, submitters_at
from switchgear.cli.demo_workers import WORKERS, workers_at
from switchgear.cli.output import Column, print_table, printable
from switchgear.config import Config

__all__ = ["Demo"]

JOB_SECONDS: Final = 3.0  # how long a job may take on a busy machine
HAS_NO_RESULTS: Final = "dwork"  # it reports that a task is done, without a result
TICKS: Final = ("✓", "✗")
PLAIN_TICKS: Final = ("ok", "FAILED")
STYLES: Final = {TICKS[0]: "green", TICKS[1]: "bold red"}


class Demo:
    """Sends the jobs of the demo to a server with this configuration."""

    def __init__(self, config: Config) -> None:
        self._zeromq = config.zeromq

    def __call__(self, addresses: Iterable[str]) -> None:
        """Send the jobs, and print their results."""
        try:
            self._show(self._usable_addresses(addresses))
        except Exception as error:  # it is only a demo: the server continues
            click.echo(f"demo: {_describe(error)}", err=True)

    def _usable_addresses(self, addresses: Iterable[str]) -> DemoAddresses:
        if not self._zeromq.curve_key_file:
            return DemoAddresses.of(addresses)
        if self._zeromq.curve_clients_dir:
            click.echo("demo: without PING/PONG, WMP and dwork, whose listeners take only those whose keys they know")
            return DemoAddresses.of(addresses).without_zeromq()
        from switchgear.client.zeromq_sockets import CurveKeys

        return DemoAddresses.of(addresses, CurveKeys.load(self._zeromq.curve_key_file))

    def _show(self, addresses: DemoAddresses) -> None:
        submitters, workers = submitters_at(addresses), workers_at(addresses)
        if not submitters:
            click.echo("demo: nothing to show: there is no listener for those who submit jobs")
            return
        began = time.monotonic()
        trials = {
            (trial.submitter, trial.worker): trial
            for worker in workers
            for trial in _try_worker(addresses, submitters, worker)
        }
        _print(submitters, workers, trials, time.monotonic() - began)


class Trial:
    """One job, from one submitter to one worker."""

    def __init__(self, submitter: str, worker: str) -> None:
        self.submitter = submitter
        self.worker = worker
        self.payload = f"hello, {worker} {secrets.token_hex(8)}".encode()
        self.problem = ""

    def run(self, addresses: DemoAddresses, done: set[bytes]) -> None:
        """Submit a job, and check its result; `done` has the payloads that the worker has seen."""
        try:
            result = SUBMITTERS[self.submitter](addresses, self.payload, JOB_SECONDS)
        except Exception as error:
            self.problem = _describe(error)
            return
        wanted = b"" if self.worker == HAS_NO_RESULTS else self.payload[::-1]
        if self.payload not in done:
            self.problem = "another worker has done it"
        elif result != wanted and self.submitter != HAS_NO_RESULTS:
            self.problem = f"came back as {result!r}"


def _try_worker(addresses: DemoAddresses, submitters: list[str], worker: str) -> list[Trial]:
    """Send a job of every submitter, all at once, to one kind of worker."""
    trials = [Trial(submitter, worker) for submitter in submitters]
    done: set[bytes] = set()

    def do(payload: bytes) -> bytes:
        done.add(payload)
        return payload[::-1]

    try:
        with WORKERS[worker](addresses, do):
            # Daemons: a server that is stopped in the middle of its demo does not wait for it.
            threads = [threading.Thread(target=trial.run, args=(addresses, done), daemon=True) for trial in trials]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except Exception as error:  # the worker could not begin, or not end
        for trial in trials:
            trial.problem = trial.problem or _describe(error)
    return trials


def _print(submitters: list[str], workers: list[str], trials: dict[tuple[str, str], Trial], seconds: float) -> None:
    good, bad = TICKS if _can_print(TICKS) else PLAIN_TICKS
    problems = [trial for trial in trials.values() if trial.problem]
    click.echo("demo: a job from each submitter (rows) to each worker (columns)")
    rows = [
        [submitter, *(bad if trials[submitter, worker].problem else good for worker in workers)]
        for submitter in submitters
    ]
    print_table([Column(""), *map(Column, workers)], rows, STYLES)
    for problem, pairs in itertools.groupby(sorted(problems, key=_problem_of), _problem_of):
        click.echo(f"demo: {', '.join(f'{pair.submitter} to {pair.worker}' for pair in pairs)}: {printable(problem)}")
    came_back = f"{len(trials) - len(problems)} of {len(trials)} jobs came back"
    click.echo(f"demo: {came_back} in {seconds:.1f} s; serving until Ctrl-C")


def _problem_of(trial: Trial) -> str:
    return trial.problem


def _can_print(texts: Iterable[str]) -> bool:
    try:
        "".join(texts).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
