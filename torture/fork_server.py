"""Forks servers from a process that has the program in memory (`python -m torture.fork_server`).

A line of JSON on standard input, with the arguments and the file for what it prints, starts one; the answer is its
process id.  Everything that a start of `python -m switchgear` does after importing happens in the child.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import switchgear.cli.serve
import switchgear.net.listeners
import switchgear.net.service  # noqa: F401
from switchgear.cli.main import main as switchgear_main


def serve(log: str, arguments: list[str]) -> None:
    """In the child."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    switchgear_main(arguments, prog_name="switchgear")


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            serve(wanted["log"], wanted["arguments"])
        sys.stdout.buffer.write(b"%d\n" % pid)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
