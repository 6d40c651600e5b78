"""Jobs that wait for jobs: a report that is made of parts, and a place to clean up in whatever way it ends.

python examples/graph.py
"""

from __future__ import annotations

from switchgear import App, Job, PredecessorFailed

app = App()

SALES = {"Berlin": [120, 80], "Paris": [200], "Rome": [15, 5, 30]}


@app.task
def load(city: str) -> list[int]:
    return SALES[city]


@app.task
def add_up(figures: list[int]) -> int:
    return sum(figures)


@app.task
def report(totals: dict[str, int]) -> str:
    return ", ".join(f"{city} {total}" for city, total in totals.items())


@app.task
def clean_up(what: str) -> str:
    return f"cleaned up after {what}"


def report_on(*cities: str) -> tuple[Job[str], Job[str]]:
    """All of the graph is submitted at once, and the server keeps it: this program need not wait for any of it."""
    # A job stands for its result; `as_argument` says so to type checkers.
    totals = {city: add_up.submit(load.submit(city).as_argument).as_argument for city in cities}
    made = report.submit(totals)
    # Those that wait for a job fail with it, unless they say otherwise.
    cleaned = clean_up.options(after=made, on_failure="run").submit(" and ".join(cities))
    return made, cleaned


def main() -> None:
    made, cleaned = report_on("Berlin", "Paris", "Rome")
    print(made.result())
    print(cleaned.result())

    made, cleaned = report_on("Berlin", "Atlantis")
    print(cleaned.result())
    try:
        made.result()
    except PredecessorFailed:
        print("no report:", made.wait())


if __name__ == "__main__":
    main()
