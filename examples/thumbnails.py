"""Small copies of pictures: made once each, tried again if the disk is in a bad mood, with progress.

It draws its pictures itself, so it runs anywhere: python examples/thumbnails.py
For the work to be done elsewhere: cd examples && switchgear worker thumbnails:app --slots 4
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from switchgear import App, current_job

app = App()


@dataclass
class Thumbnail:
    """What a task returns may be a dataclass; it travels as JSON."""

    path: Path
    width: int
    height: int


# `unique`, `unique_for`: whoever asks for the same picture again within a minute shares the job, and its result.
# `retry_on`: a disk that is full or away may be better in a moment, but a file that is no picture stays one.
# `timeout`: then the job is taken from its worker.
@app.task(unique=lambda path: str(path), unique_for=60, retries=3, backoff=[0.1, 1, 10], retry_on=OSError, timeout=60)
def thumbnail(path: Path, factor: int = 4) -> Thumbnail:
    """A copy of a grey picture (PGM), each pixel of which is the mean of `factor` times `factor` others."""
    kind, size, _, pixels = path.read_bytes().split(b"\n", 3)
    if kind != b"P5":
        raise ValueError(f"{path.name} is not a PGM picture")
    width, height = (int(figure) // factor for figure in size.split())
    rows: list[bytes] = []
    for y in range(height):
        rows.append(bytes(_mean(pixels, width * factor, x * factor, y * factor, factor) for x in range(width)))
        current_job().progress(y + 1, height, path.name)
        current_job().raise_if_cancelled()
    small = path.with_suffix(".small.pgm")
    small.write_bytes(b"P5\n%d %d\n255\n" % (width, height) + b"".join(rows))
    return Thumbnail(small, width, height)


def _mean(pixels: bytes, width: int, x: int, y: int, factor: int) -> int:
    return sum(sum(pixels[row * width + x : row * width + x + factor]) for row in range(y, y + factor)) // factor**2


def draw(path: Path, width: int, height: int) -> Path:
    """A picture to begin with."""
    path.write_bytes(b"P5\n%d %d\n255\n" % (width, height) + bytes(x ^ y for y in range(height) for x in range(width)))
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        pictures = [draw(Path(place, f"picture-{number}.pgm"), 256, 128) for number in range(3)]

        first = thumbnail.submit(pictures[0])
        again = thumbnail.submit(pictures[0])
        last = list(first.updates())[-1:]
        print("progress:", *(f"{update.done} of {update.total} lines" for update in last))
        print("asked twice, made once:", first == again)

        for made in thumbnail.map(pictures):
            print(f"{made.path.name}: {made.width} x {made.height}")

        broken = Path(place, "letter.txt")
        broken.write_text("Dear Ada,\nhow are you?\nYours,\nCharles")
        job = thumbnail.submit(broken)
        status = job.wait()
        print(f"{broken.name}: {status} after {job.status().attempts} attempt")


if __name__ == "__main__":
    main()
