"""Pictures to work on: a sky, a sea, and a sun that is a little lower on each."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

__all__ = ["paint_gallery"]


def paint_gallery(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """So many pictures of this size."""
    folder.mkdir(parents=True)
    files = [folder / f"{number:02}.jpg" for number in range(1, count + 1)]
    for number, file in enumerate(files):
        _paint(number / count, size).save(file)
    return files


def _paint(hour: float, size: tuple[int, int]) -> Image.Image:
    width, height = size
    slope = Image.linear_gradient("L").resize(size)
    sky = Image.merge("RGB", [slope.point(lambda shade: int(shade * (0.5 + hour / 2))), slope.point(_half), slope])
    pen = ImageDraw.Draw(sky)
    x, y, radius = width * (0.3 + hour / 2), height * (0.1 + hour / 2), height // 8
    pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(255, 220, int(120 * (1 - hour))))
    pen.rectangle([0, height * 2 // 3, width, height], fill=(20, 40, 90))
    return sky


def _half(shade: int) -> int:
    return shade // 2
