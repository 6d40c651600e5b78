"""resize, thumbgen and captcha: pictures."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from examples.livejournal.tasks.base import Task
from examples.livejournal.world import World

__all__ = ["CAPTCHA_POOL", "captcha", "resize", "thumbgen"]

CAPTCHA_POOL = 5  # so many are kept ready
CAPTCHA_LETTERS = "abcdefhkmnprstwxyz"  # that are not mistaken for each other
CAPTCHA_SIZE = (200, 70)

Scale = Callable[[Image.Image, tuple[int, int]], Image.Image]


def resize(world: World, task: Task) -> bytes:
    """Each image as large as fits into the box."""
    return _scale_all(world, task, ImageOps.contain)


def thumbgen(world: World, task: Task) -> bytes:
    """Each image exactly as large as the box; what does not fit is cut off."""
    return _scale_all(world, task, ImageOps.fit)


def _scale_all(world: World, task: Task, scale: Scale) -> bytes:
    args = json.loads(task.args)
    box = (args["width"], args["height"])
    folder = world.place / args["folder"] / f"{box[0]}x{box[1]}"
    folder.mkdir(parents=True, exist_ok=True)
    names = args["images"]
    started = time.monotonic()
    for count, name in enumerate(names, 1):
        with Image.open(world.place / name) as image:
            scale(image, box).save(folder / Path(name).name)
        seconds_each = (time.monotonic() - started) / count
        task.progress(count, len(names), seconds_each * (len(names) - count))
    return f"{len(names)} of {box[0]}x{box[1]}".encode()


def captcha(world: World, task: Task) -> bytes:
    """Draw until there are enough."""
    folder = world.place / "captchas"
    folder.mkdir(exist_ok=True)
    with world.site() as site:
        ((count,),) = site.ask("SELECT count(*) FROM captchas")
        for number in range(count, CAPTCHA_POOL):
            answer = "".join(secrets.choice(CAPTCHA_LETTERS) for _ in range(5))
            file = folder / f"{secrets.token_hex(8)}.png"
            _draw_captcha(answer).save(file)
            site.change("INSERT INTO captchas VALUES (?, ?)", file.name, answer)
            task.progress(number + 1, CAPTCHA_POOL)
    return f"{CAPTCHA_POOL} are ready".encode()


def _draw_captcha(answer: str) -> Image.Image:
    """The letters, each at an angle of its own, and lines across."""
    width, height = CAPTCHA_SIZE
    picture = Image.new("L", CAPTCHA_SIZE, 255)
    font = ImageFont.load_default(40)
    for place, letter in enumerate(answer):
        tile = Image.new("L", (50, 60), 255)
        ImageDraw.Draw(tile).text((12, 2), letter, fill=0, font=font)
        tile = tile.rotate(secrets.randbelow(51) - 25, fillcolor=255)
        picture.paste(tile, (place * (width - 50) // (len(answer) - 1), secrets.randbelow(height - 60)))
    pen = ImageDraw.Draw(picture)
    for _ in range(6):
        pen.line([(0, secrets.randbelow(height)), (width, secrets.randbelow(height))], fill=secrets.randbelow(160))
    return picture
