"""One thread that works until the very end of a program."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from switchgear.storage.lone_thread import LoneThread


def test_pieces_are_done_in_order_in_one_thread() -> None:
    lone = LoneThread("lone")
    done: list[tuple[int, str]] = []

    def piece(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number

    futures = [lone.submit(piece, number) for number in range(5)]
    lone.shutdown()
    assert [future.result() for future in futures] == list(range(5))
    assert done == [(number, "lone") for number in range(5)]


def test_an_error_is_told_and_the_next_piece_is_done() -> None:
    lone = LoneThread("lone")
    bad, good = lone.submit(int, "x"), lone.submit(int, "1")
    lone.shutdown()
    with pytest.raises(ValueError, match="invalid literal"):
        bad.result()
    assert good.result() == 1


def test_a_piece_that_nobody_wants_any_more_is_left_out() -> None:
    lone = LoneThread("lone")
    gate = threading.Event()
    lone.submit(gate.wait)
    unwanted = lone.submit(int, "1")
    assert unwanted.cancel()
    gate.set()
    lone.shutdown()
    assert unwanted.cancelled()


def test_it_works_when_a_program_ends() -> None:
    program = """
import atexit
from switchgear.storage.lone_thread import LoneThread
lone = LoneThread("lone")
atexit.register(lambda: print(lone.submit(int, "1").result()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("1\n", "")
