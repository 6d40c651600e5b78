"""Tasks whose functions three different nodes own, for `switchgear worker tests.system.owner_flows`."""

from __future__ import annotations

from types import SimpleNamespace

from switchgear import App, Failure, current_job
from switchgear.partitions import partition_of, preferred_node

NAMES = ("ada", "bob", "cleo")


def owned_by(owner: str, word: str) -> str:
    """A name of a task that this node owns when all nodes are there."""
    names = (f"{word}{number}" for number in range(1_000))
    return next(name for name in names if preferred_node(partition_of(name.encode()), NAMES) == owner)


def tasks_at(url: str) -> SimpleNamespace:
    """The app of these tasks at one node, and the tasks."""
    app = App(url, name="flows")

    @app.task(name=owned_by("ada", "one"))
    def one(number: int) -> int:
        return number

    @app.task(name=owned_by("bob", "add"))
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name=owned_by("cleo", "total"))
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name=owned_by("bob", "fail"))
    def fail(number: int) -> int:
        raise ValueError(f"no {number}")

    @app.task(name=owned_by("cleo", "report"))
    def report(failure: Failure) -> str:
        return str(failure.exception)

    @app.task(name=owned_by("ada", "grow"))
    def grow(count: int) -> int:
        """Adds jobs that whatever waits for this one waits for too."""
        for number in range(count):
            current_job().spawn(add.s(number, 1))
        return count

    @app.task(name=owned_by("cleo", "total_of"))
    def total_of(count: int) -> int:
        return count

    return SimpleNamespace(
        total_of=total_of, app=app, one=one, add=add, total=total, fail=fail, report=report, grow=grow
    )


app = tasks_at("gearman://127.0.0.1:1").app
