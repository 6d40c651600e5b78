"""`switchgear serve` and the group it belongs to: options become a configuration, errors become exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result

from switchgear.cli import main as main_module
from switchgear.cli import serve as serve_module
from switchgear.cli.demo import Demo
from switchgear.cli.main import COMMANDS, ExitCode, exit_code_of, main
from switchgear.config import SETTINGS, Config
from switchgear.errors import (
    ConfigError,
    JobFailed,
    ServerRefused,
    ServerUnreachable,
    StorageError,
    SwitchgearError,
)
from switchgear.net.process.service_manager import ServiceManager
from switchgear.version import BUILD, VERSION


class Service:
    """Stands in for the server: notes how it was called, and ends as it is told."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.reload: Callable[[], Config] | None = None
        self.demo: Callable[[list[str]], None] | None = None
        self.ending: int | BaseException = 0

    def run_server(
        self,
        config: Config,
        *,
        reload: Callable[[], Config] | None = None,
        demo: Callable[[list[str]], None] | None = None,
        on_listening: Callable[[], None] | None = None,
        manager: ServiceManager | None = None,
        restore_display: object = None,
    ) -> int:
        self.configs.append(config)
        self.reload = reload
        self.demo = demo
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    fake = Service()
    module = ModuleType("switchgear.net.service")
    module.run_server = fake.run_server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "switchgear.net.service", module)
    monkeypatch.setattr(serve_module, "raise_file_descriptors", lambda connections: None)
    for variable in list(os.environ):
        if variable.startswith("SWITCHGEAR_"):
            monkeypatch.delenv(variable)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="switchgear")


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--store", "memory:"], "store", "memory:"),
        (["--store=sqlite:/tmp/x.db"], "store", "sqlite:/tmp/x.db"),
        (["--sync", "normal"], "storage.sync", "normal"),
        (["--drain-timeout", "5m"], "drain_timeout_seconds", 300.0),
        (["--log-level", "DEBUG"], "log.level", "debug"),
        (["--log-file", "/tmp/x.log"], "log.file", "/tmp/x.log"),
        (["--log-format", "json"], "log.format", "json"),
        (["--allow-remote"], "allow_remote", True),
        ([], "allow_remote", False),
        (["--set", "limits.packet_bytes=1MiB"], "limits.packet_bytes", 2**20),
        (["--set", "gearman.handle_prefix=a=b"], "gearman.handle_prefix", "a=b"),
        (["--set", "engine.attempts=5", "--set", "engine.wakeups=0"], "engine.attempts", 5),
    ],
)
def test_an_option_sets_its_setting(service: Service, arguments: list[str], name: str, value: object) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 0, result.output
    assert SETTINGS[name].value_in(service.configs[0]) == value


def test_listeners_add_up(service: Service) -> None:
    result = run("serve", "--listen", "gearman://127.0.0.1:1", "--listen", "gearman://[::1]:2")
    assert result.exit_code == 0, result.output
    assert [str(url) for url in service.configs[0].listen] == ["gearman://127.0.0.1:1", "gearman://[::1]:2"]


def test_every_flag_named_in_a_setting_exists() -> None:
    options = {name for parameter in serve_module.serve.params for name in parameter.opts}
    assert {setting.flag for setting in SETTINGS.values() if setting.flag} <= options


@pytest.mark.parametrize("arguments", [[], ["--demo"]])
def test_the_demo_is_asked_for(service: Service, arguments: list[str]) -> None:
    run("serve", *arguments)
    assert isinstance(service.demo, Demo if arguments else type(None))
    assert service.reload is not None
    assert service.reload() == service.configs[0], "a reload finds nothing changed"


def test_file_environment_and_flags_meet(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.toml"
    file.write_text("store = 'memory:'\n[engine]\nattempts = 7\nwakeups = 7\n[limits]\njobs = 7\n")
    monkeypatch.setenv("SWITCHGEAR_ENGINE_WAKEUPS", "8")
    run("serve", "--config", str(file), "--set", "limits.jobs=9")
    config = service.configs[0]
    assert (config.store, config.engine.attempts, config.engine.wakeups, config.limits.jobs) == ("memory:", 7, 8, 9)


def test_a_reload_reads_everything_again(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[engine]\nattempts = 7\n")
    run("serve", "--config", str(file), "--set", "limits.jobs=9")
    file.write_text("[engine]\nattempts = 8\n")
    assert service.reload is not None
    again = service.reload()
    assert (again.engine.attempts, again.limits.jobs) == (8, 9)


def test_the_servers_exit_code_is_passed_on(service: Service) -> None:
    service.ending = 1
    assert run("serve").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "engine.attempt=1"], "switchgear: unknown setting engine.attempt; did you mean engine.attempts?"),
        (["--set", "engine.attempts=x"], "switchgear: engine.attempts: expected a whole number"),
        (["--set", "engine.attempts"], "not of the form NAME=VALUE"),
        (["--set", "=1"], "not of the form NAME=VALUE"),
        (["--set", "engine.attempts=1", "--set", "engine.attempts=2"], "engine.attempts is given twice"),
        (["--sync", "full", "--set", "storage.sync=normal"], "storage.sync is given twice"),
        (["--sync", "always"], "'always' is not one of 'full', 'normal'"),
        (
            ["--store", "mysql:"],
            "switchgear: store: expected sqlite:PATH, postgresql://USER@HOST/DATABASE, memory: or nothing",
        ),
        (["--listen", "gearman://0.0.0.0"], "--allow-remote"),
        (["--config", "/does/not/exist.toml"], "/does/not/exist.toml: cannot be read"),
        (["--bogus"], "No such option"),
        (["stray"], "unexpected extra argument"),
    ],
)
def test_a_mistake_ends_with_a_line_and_code_2(service: Service, arguments: list[str], complaint: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert complaint in result.stderr
    assert "Traceback" not in result.output
    assert not service.configs


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (ServerUnreachable("x"), 3),
        (ServerRefused("CODE", "x"), 1),
        (JobFailed("x"), 1),
        (StorageError("x"), 1),
        (SwitchgearError("x"), 1),
        (TimeoutError("x"), 4),
        (PermissionError("x"), 1),
    ],
)
def test_each_error_has_its_code(service: Service, error: Exception, code: int) -> None:
    service.ending = error
    result = run("serve")
    assert result.exit_code == code == exit_code_of(error)
    assert result.stderr.startswith("switchgear: ")
    assert result.stderr.endswith("x\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_130_without_words(service: Service, error: BaseException) -> None:
    service.ending = error
    result = run("serve")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert result.stderr == "\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "timed out waiting"),
        (OSError(98, "address already in use"), "address already in use"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "/x: No such file or directory"),
    ],
)
def test_an_error_is_told_in_words(service: Service, error: Exception, words: str) -> None:
    service.ending = error
    assert run("serve").stderr == f"switchgear: {words}\n"


@pytest.mark.parametrize(("value", "traced"), [("1", True), ("0", False), ("", False)])
def test_a_traceback_only_for_those_who_ask(
    service: Service, monkeypatch: pytest.MonkeyPatch, value: str, traced: bool
) -> None:
    monkeypatch.setenv("SWITCHGEAR_DEBUG", value)
    service.ending = StorageError("no room")
    result = run("serve")
    assert ("Traceback" in result.stderr) is traced
    assert result.stderr.endswith("switchgear: no room\n")
    assert result.exit_code == 1


# --- the group


def test_the_help_lists_commands_examples_and_exit_codes() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert name in result.output
        assert lazy.help in result.output
    for code in ExitCode:
        assert f"{code:>3}  {code.meaning}" in result.output
    assert "switchgear submit reverse hello" in result.output


@pytest.mark.parametrize("name", ["serve", "gearmand", "config"])
def test_the_help_of_the_group_and_of_the_command_agree(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    shown = command.get_short_help_str(80)
    assert shown in (COMMANDS[name].help, "Run the job server until it receives a signal to stop.")
    assert "Examples:" in run(name, *(["check"] if name == "config" else []), "--help").output


def test_the_version() -> None:
    assert run("--version").output == f"switchgear {VERSION}\n"
    assert run("version").output.startswith(f"switchgear {VERSION}, {BUILD} (Python 3.")
    described = json.loads(run("version", "--json").output)
    assert (described["switchgear"], described["build"]) == (VERSION, BUILD)
    assert set(described) == {"switchgear", "build", "python", "system"}


def test_the_version_with_what_it_runs_on() -> None:
    described = json.loads(run("version", "--verbose", "--json").output)
    assert described["files"] == str(Path(main_module.__file__).parents[1])
    lines = dict(line.split(None, 1) for line in run("version", "--verbose").output.splitlines()[1:])
    assert set(lines) == {"system", "uvloop", "msgspec", "sqlite", "zeromq", "pyzmq", "files"}
    assert lines == {name: described[name] for name in lines}


def test_no_such_command() -> None:
    result = run("sreve")
    assert result.exit_code == ExitCode.USAGE
    assert "No such command 'sreve'" in result.stderr


def test_the_version_is_shown_without_importing_the_server() -> None:
    script = (
        "import sys\n"
        "from switchgear.cli.main import main\n"
        "main(['--version'], prog_name='switchgear', standalone_mode=False)\n"
        "heavy = {'asyncio', 'sqlite3', 'rich', 'msgspec', 'uvloop', 'logging', 'tomllib', 'switchgear.config'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    source = Path(main_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"switchgear {VERSION}\n[]\n"


def test_it_runs_as_a_module() -> None:
    source = Path(main_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", "serve", "--sync=never"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("Usage: switchgear serve")
