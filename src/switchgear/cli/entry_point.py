"""The entry point of the `switchgear` command: Ctrl-C while the modules of the command are imported is no traceback."""

import sys

__all__ = ["main"]

INTERRUPTED = 130  # ExitCode.INTERRUPTED, which is not imported yet


def main() -> None:
    """Import the command and run it."""
    try:
        from switchgear.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    command(prog_name="switchgear")
