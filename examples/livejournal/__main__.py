"""`python -m examples.livejournal`"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path

try:
    import PIL  # noqa: F401  # looked for here, so that its absence is one sentence
except ImportError:
    sys.exit("This example works on pictures and needs Pillow: pip install '.[examples]', or pip install Pillow")

from examples.livejournal.day import QUICK, USUAL
from examples.livejournal.play import play
from examples.livejournal.processes import DidNotStart
from examples.livejournal.screen import open_screen
from switchgear.errors import SwitchgearError

INTERRUPTED = 130


def main() -> int:
    """Run the example; returns the exit code: 0 if all was as expected."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.livejournal",
        description="A site with journals has its jobs done: its own job server, workers, mail server and all.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller pictures: a few seconds")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="do it in this folder, which stays, to be looked at"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.keep is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="livejournal-")))
        else:
            place = options.keep.resolve()
            place.mkdir(parents=True, exist_ok=True)
            if any(place.iterdir()):
                parser.error(f"{place} is not empty")
        return _play(place, options.quick)


def _play(place: Path, quick: bool) -> int:
    try:
        all_good = asyncio.run(_until_told_to_stop(play(place, QUICK if quick else USUAL, open_screen())))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except (DidNotStart, SwitchgearError, OSError, ExceptionGroup) as error:
        for reason in _reasons(error):
            print(f"This did not work: {reason!r}", file=sys.stderr)
        for file in sorted(place.glob("*.log")):
            print(f"--- {file.name}\n{file.read_text(errors='replace')}", file=sys.stderr)
        return 1
    return 0 if all_good else 1


async def _until_told_to_stop(playing: Coroutine[None, None, bool]) -> bool:
    """SIGTERM is as good as Ctrl-C: no process and no folder stays behind."""
    task = asyncio.ensure_future(playing)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _reasons(error: Exception) -> list[Exception]:
    """The error, or those that a group of tasks died of."""
    if isinstance(error, ExceptionGroup):
        return [reason for each in error.exceptions for reason in _reasons(each)]
    return [error]


if __name__ == "__main__":
    sys.exit(main())
