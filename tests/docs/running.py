"""Trying what a page shows: its Python in this process, its commands in a shell."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from switchgear import App
from switchgear.app.worker.background_worker import start_background
from tests.docs.pages import Block, Command, blocks_of, commands_of, matches
from tests.support.servers import free_port, running_switchgear
from tests.support.waiting import eventually

__all__ = ["Reader"]

PATIENCE_SECONDS: Final = 60.0
DOCUMENTED_PORT: Final = "4730"
DOCUMENTED_HTTP_PORT: Final = "4740"
DOCUMENTED_HOST: Final = "myhost"
_HERE: Final = re.compile(rf"\b{re.escape(socket.gethostname())}\b")
_TEST: Final = re.compile(r"^(?:async )?def test_", re.MULTILINE)


class Reader:
    """Somebody who goes through a page, in a directory of their own, and does all that it says."""

    def __init__(
        self, page: Path, place: Path, *, does_commands: bool, programs: Path | None = None, ports: Sequence[str] = ()
    ) -> None:
        """`programs` is a directory of programs that come before others of their name; `ports` are documented ports
        beside the usual ones."""
        self._page = page
        self._place = place
        self._does_commands = does_commands
        name = page.stem.replace("-", "_")
        self._module = ModuleType(f"{name}_page" if name in sys.stdlib_module_names else name)  # http.md is not `http`
        self._module.__file__ = str(page)
        self._terminals: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._harness = contextlib.ExitStack()
        self._port = self._http_port = ""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHGEAR_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        if programs is not None:
            path = f"{programs}:{path}"
        self._ports = {port: str(free_port()) for port in ports}
        self._environment = {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}

    def read(self) -> None:
        """Do what the page says, from top to bottom."""
        blocks = [block for block in blocks_of(self._page) if not block.is_skipped]
        with self._harness:
            self._harness.callback(self._leave)
            if any(block.file_name is None and _TEST.search(block.text) for block in blocks):
                self._try_tests([block for block in blocks if block.language == "python"])
                return
            sys.modules[self._module.__name__] = self._module
            for block in blocks:
                if block.language == "python" and block.file_name is not None:
                    (self._place / block.file_name).write_text(self._real(block.text), encoding="utf-8")
                if block.language == "python" and not (block.file_name is not None and self._does_commands):
                    self._try_python(block)
                if block.language == "console" and (self._does_commands or block.how is not None):
                    self._try_commands(block)

    def _leave(self) -> None:
        sys.modules.pop(self._module.__name__, None)
        for app in {id(value): value for value in vars(self._module).values() if isinstance(value, App)}.values():
            app.close()
        for process, _ in self._terminals:
            process.send_signal(signal.SIGTERM)
        for process, _ in self._terminals:
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    # --- Python ---

    def _try_python(self, block: Block) -> None:
        code = ast.parse(self._real(block.text), str(self._page))
        ast.increment_lineno(code, block.line - 1)  # a traceback names the line of the page
        names = vars(self._module)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(self._page), "exec", dont_inherit=True), names)
        if block.how == "with a worker":
            worker = start_background(names["app"])
            self._harness.callback(worker.stop, PATIENCE_SECONDS)
        if block.output is not None:
            self._compare(f"line {block.line}", block.output, printed.getvalue())

    def _real(self, text: str) -> str:
        """With ports on which somebody listens in place of the documented ones."""
        if f":{DOCUMENTED_PORT}" in text and not self._port:
            if self._does_commands:  # one of them starts the server
                self._port = str(free_port())
            else:
                self._port = str(self._harness.enter_context(running_switchgear()).port)
        if f":{DOCUMENTED_HTTP_PORT}" in text and not self._http_port:
            self._http_port = str(free_port())
        for documented, port in self._ports.items():
            text = text.replace(documented, port)
        text = text.replace(f":{DOCUMENTED_HTTP_PORT}", f":{self._http_port}")
        return text.replace(f":{DOCUMENTED_PORT}", f":{self._port}")

    def _try_tests(self, blocks: list[Block]) -> None:
        """A page of tests is a file for pytest.  Each line stands where it is in the page, which tracebacks name."""
        text = ""
        for block in blocks:
            text += "\n" * (block.line - 1 - text.count("\n")) + block.text
        file = self._place / f"test_{self._module.__name__}.py"
        file.write_text(text, encoding="utf-8")
        done = self._shell(f"{sys.executable} -m pytest -q -p no:cacheprovider -W error {file.name}")
        count = len(_TEST.findall(text))
        assert f"\n{count} passed in " in done.stdout, f"{count} tests of {self._page}:\n{done.stdout}{done.stderr}"
        assert not (self._place / ".switchgear").exists(), f"the tests of {self._page} left a directory of jobs behind"

    # --- commands ---

    def _try_commands(self, block: Block) -> None:
        for command in commands_of(block):
            line = self._real(command.line).replace(DOCUMENTED_HOST, socket.gethostname())
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                self._environment[name] = value
            elif block.how == "in a second terminal":
                self._begin(line, command)
            else:
                self._run(line, command, again=block.how == "until it is so")

    def _run(self, line: str, command: Command, *, again: bool) -> None:
        done = self._shell(line)
        until_s = time.monotonic() + PATIENCE_SECONDS
        while again and not self._matches(command.output, done.stdout) and time.monotonic() < until_s:
            done = self._shell(line)
        self._compare(f"$ {line}", command.output, done.stdout, f"standard error:\n{done.stderr}")
        assert done.returncode == 0, f"{self._page}: $ {line}\nended with {done.returncode}:\n{done.stderr}"

    def _shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def _begin(self, line: str, command: Command) -> None:
        """Start it, and go on when all that the page shows has been printed."""
        log = self._place / f"terminal-{len(self._terminals)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self._place,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._terminals.append((process, log))

        def has_said_so() -> bool:
            return self._matches(command.output, log.read_text(), is_beginning=True) or process.poll() is not None

        with contextlib.suppress(AssertionError):
            eventually(has_said_so, f"{line} prints what the page says", PATIENCE_SECONDS)
        self._compare(f"$ {line}", command.output, log.read_text(), is_beginning=True)

    def _matches(self, expected: str, seen: str, *, is_beginning: bool = False) -> bool:
        return matches(expected, _HERE.sub(DOCUMENTED_HOST, seen), is_beginning=is_beginning)

    def _compare(self, what: str, expected: str, seen: str, more: str = "", *, is_beginning: bool = False) -> None:
        if not self._matches(expected, seen, is_beginning=is_beginning):
            logs = "".join(f"\nterminal {log.name}:\n{log.read_text()}" for _, log in self._terminals)
            raise AssertionError(f"{self._page}: {what}\nthe page says:\n{expected}\nit is:\n{seen}\n{more}{logs}")
