"""A worker of the site: `python -m examples.livejournal.worker FOLDER NAME...`, for the jobs of these names."""

from __future__ import annotations

import argparse
import signal
from functools import partial
from pathlib import Path

from examples.livejournal.tasks import HANDLERS, Task, TaskValue
from examples.livejournal.world import World
from switchgear.client.draft import DraftTask, DraftWorker, DraftWorkerObserver

__all__: list[str] = []


class Diary(DraftWorkerObserver):
    """A line for each task on standard output."""

    def task_started(self, task: DraftTask) -> None:
        print(f"{task.name}: {len(task.args)} bytes of arguments", flush=True)

    def task_ended(self, task: DraftTask, code: int, seconds: float) -> None:
        print(f"{task.name}: code {code} after {seconds:.3f} s", flush=True)


class StuckHalfway:
    """A task that comes half the way and no further: for a worker that is going to be killed."""

    def __init__(self, task: Task) -> None:
        self.name = task.name
        self.args = task.args
        self._task = task

    def progress(self, numerator: int, denominator: int, seconds_left: float | None = None) -> None:
        self._task.progress(numerator, denominator, seconds_left)
        if 2 * numerator >= denominator:
            print(f"{self.name}: stuck", flush=True)
            signal.pause()
            raise SystemExit("told to stop before it was killed")


def handle(world: World, gets_stuck: bool, task: Task) -> TaskValue:
    """Do what the task's name asks for."""
    return HANDLERS[task.name](world, StuckHalfway(task) if gets_stuck else task)


def main() -> None:
    """Work until a signal says that it is enough."""
    parser = argparse.ArgumentParser(prog="python -m examples.livejournal.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=HANDLERS)
    parser.add_argument("--gets-stuck", action="store_true", help="come half the way with each task, and no further")
    options = parser.parse_args()
    world = World.load(options.folder)
    handler = partial(handle, world, options.gets_stuck)
    worker = DraftWorker(world.server_url, dict.fromkeys(options.names, handler), observer=Diary())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    main()
