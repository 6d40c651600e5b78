"""Jobs that come by themselves.  The server keeps the timetable; no process of its own is needed for it.

python examples/schedule.py
"""

from __future__ import annotations

import queue

from switchgear import App

app = App()
beats: queue.SimpleQueue[str] = queue.SimpleQueue()


# However many workers declare it, there is one job for each tick.
@app.every(0.5, catch_up="none", kwargs={"of": "heart"})
def beat(of: str) -> None:
    beats.put(of)


# Of the nights in which nothing ran, the last one is made up for.
@app.every("30 2 * * *", timezone="Europe/Berlin", catch_up="latest", retries=3)
def backup() -> str:
    return "backed up"


def main() -> None:
    app.declare()  # a worker does this when it connects
    for schedule in app.schedules.list():
        print(f"{schedule.name}: {schedule.spec}")
    for number in range(3):
        print("beat", number + 1, "of the", beats.get())
    print(app.schedules.run(backup.name).result(), "before its time")
    app.schedules.remove(beat.name)


if __name__ == "__main__":
    main()
