"""`switchgear gearmand`: every option of gearmand has its effect, a warning, or a refusal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from switchgear.cli import gearmand as gearmand_module
from switchgear.cli.gearmand import translate
from switchgear.cli.gearmand_flags import FLAGS, flags_table, parse_file, parse_words
from switchgear.cli.main import main
from switchgear.cli.process import ProcessOptions
from switchgear.config import SETTINGS, Config
from switchgear.errors import ConfigError, StorageError
from switchgear.net.process.service_manager import ServiceManager

MANUAL = Path(__file__).parents[2] / "docs" / "howto" / "replace-gearmand.md"
LOOPBACK_ONLY = "only this machine can connect"


class Service:
    """Stands in for the server and for the process it runs in."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.reload: Callable[[], Config] | None = None
        self.process: ProcessOptions | None = None
        self.descriptors: list[int] = []
        self.ending: int | Exception = 0

    def run_server(
        self,
        config: Config,
        *,
        reload: Callable[[], Config] | None = None,
        on_listening: Callable[[], None] | None = None,
        is_silent: bool = False,
        manager: ServiceManager | None = None,
    ) -> int:
        assert on_listening is not None
        assert is_silent
        self.config = config
        self.reload = reload
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending

    def run_process(self, options: ProcessOptions, serve: Callable[[Callable[[], None]], int]) -> int:
        self.process = options
        return serve(lambda: None)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    fake = Service()
    module = ModuleType("switchgear.net.service")
    module.run_server = fake.run_server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "switchgear.net.service", module)
    monkeypatch.setattr(gearmand_module, "run_process", fake.run_process)
    monkeypatch.setattr(gearmand_module, "raise_file_descriptors", fake.descriptors.append)
    monkeypatch.setattr(gearmand_module, "DEFAULT_CONFIG_FILE", tmp_path / "gearmand.conf")
    monkeypatch.setattr(gearmand_module, "DEFAULT_LOG_FILE", str(tmp_path / "gearmand.log"))
    for variable in list(os.environ):
        if variable.startswith(("SWITCHGEAR_", "GEARMAND_")):
            monkeypatch.delenv(variable)
    return fake


def gearmand(*words: str) -> Result:
    return CliRunner().invoke(main, ["gearmand", *words], prog_name="switchgear")


def settings_of(config: Config | None) -> dict[str, object]:
    """The settings that are not as gearmand's defaults leave them."""
    assert config is not None
    usual = translate({}, {}).load({"HOME": "/"})
    return {
        name: setting.value_in(config)
        for name, setting in SETTINGS.items()
        if setting.value_in(config) != setting.value_in(usual) and name != "state_dir"
    }


# Each row is one option with an argument, if it takes one, and what it comes to: settings by name, the process's
# options by name, the beginning of a warning, or of a refusal.
EFFECTS: list[tuple[str, Mapping[str, object]]] = [
    ("--backlog=5", {"limits.backlog": 5}),
    ("-b5", {"limits.backlog": 5}),
    ("--exceptions", {"gearman.exceptions": True}),
    ("--job-retries=2", {"engine.attempts": 2}),
    ("--job-retries=0", {}),
    ("--job-retries=-1", {}),
    ("-j2", {"engine.attempts": 2}),
    ("--gearmand-version=1.1", {}),
    ("--gearmand-version=1.1.20", {}),
    ("--gearmand-version=2.0", {"engine.function_order": "fair"}),
    ("--gearmand-version=2", {"engine.function_order": "fair"}),
    ("--job-handle-prefix=X:y", {"gearman.handle_prefix": "X:y"}),
    ("--keepalive", {}),
    ("--keepalive-idle=7", {"limits.keepalive_idle_seconds": 7}),
    ("--keepalive-idle=-1", {}),
    ("--keepalive-interval=7", {"limits.keepalive_interval_seconds": 7}),
    ("--keepalive-interval=-1", {}),
    ("--keepalive-count=7", {"limits.keepalive_count": 7}),
    ("--keepalive-count=-1", {}),
    ("--log-file=stderr", {"log.file": ""}),
    ("--log-file=none", {"log.file": "/dev/null"}),
    ("-lstderr", {"log.file": ""}),
    ("--round-robin", {"engine.function_order": "round-robin"}),
    ("-R", {"engine.function_order": "round-robin"}),
    ("--queue-type=builtin", {}),
    ("-qbuiltin", {}),
    ("--verbose=FATAL", {"log.level": "critical"}),
    ("--verbose=ALERT", {"log.level": "critical"}),
    ("--verbose=CRITICAL", {"log.level": "critical"}),
    ("--verbose=ERROR", {}),
    ("--verbose=WARNING", {"log.level": "warning"}),
    ("--verbose=NOTICE", {"log.level": "info"}),
    ("--verbose=INFO", {"log.level": "info"}),
    ("--verbose=DEBUG", {"log.level": "debug"}),
    ("--worker-wakeup=3", {"engine.wakeups": 3}),
    ("-w3", {"engine.wakeups": 3}),
]

PROCESS: list[tuple[str, ProcessOptions]] = [
    ("--daemon", ProcessOptions(daemonize=True)),
    ("-d", ProcessOptions(daemonize=True)),
    ("--file-descriptors=500", ProcessOptions(file_descriptors=500)),
    ("-f500", ProcessOptions(file_descriptors=500)),
    ("--pid-file=/run/x.pid", ProcessOptions(pid_file="/run/x.pid")),
    ("-P/run/x.pid", ProcessOptions(pid_file="/run/x.pid")),
    ("--syslog", ProcessOptions(syslog=True)),
    ("--user=gearman", ProcessOptions(user="gearman")),
    ("-ugearman", ProcessOptions(user="gearman")),
]

WARNINGS = [
    "--coredump",
    "--hashtable-buckets=200003",
    "--threads=4",
    "-t0",
    "--http-port=8080",
    "--libsqlite3-db=/tmp/x.db",
    "--libsqlite3-table=t",
    "--store-queue-on-shutdown",
    "--libmemcached-servers=x",
    "--libmemcached-prefix=x",
    "--libpq-conninfo=x",
    "--libpq-table=x",
    "--redis-server=x",
    "--redis-port=1",
    "--redis-password=x",
    "--redis-prefix=x",
    "--mysql-host=x",
    "--mysql-port=1",
    "--mysql-user=x",
    "--mysql-password=x",
    "--mysql-db=x",
    "--mysql-table=x",
    "--libtokyocabinet-file=x",
    "--libtokyocabinet-optimize",
    "--libdrizzle-host=x",
    "--libdrizzle-port=1",
    "--libdrizzle-uds=x",
    "--libdrizzle-user=x",
    "--libdrizzle-password=x",
    "--libdrizzle-db=x",
    "--libdrizzle-table=x",
    "--libdrizzle-mysql=x",
]

REFUSALS = [
    ("--ssl", "--ssl needs --ssl-certificate=FILE, or the variable GEARMAND_SERVER_PEM"),
    ("--protocol=HTTP", "--protocol: there is no protocol module 'HTTP'; the only one is http"),
    ("-rgear", "--protocol: there is no protocol module 'gear'"),
    (
        "--queue-type=MySQL",
        "--queue-type=MySQL does not exist here; to keep jobs in a file, use --queue-type=libsqlite3",
    ),
    ("--queue-type=Postgres", "--queue-type=Postgres does not exist here"),
    ("--queue-type=redis", "--queue-type=redis does not exist here"),
    ("--queue-type=libmemcached", "--queue-type=libmemcached does not exist here"),
    ("--queue-type=libtokyocabinet", "--queue-type=libtokyocabinet does not exist here"),
    ("--queue-type=libdrizzle", "--queue-type=libdrizzle does not exist here"),
    ("--queue-type=libsqlite3", "--queue-type=libsqlite3 needs --libsqlite3-db=FILE"),
    ("--verbose=LOUD", "--verbose: 'LOUD' is none of FATAL, ALERT"),
    ("--job-retries=x", "the argument ('x') for option '--job-retries' is invalid: expected a whole number"),
    ("--job-retries=-2", "the argument ('-2') for option '--job-retries' is invalid"),
    ("--hashtable-buckets=0", "--hashtable-buckets: expected at least 1, got 0"),
    (
        "--hashtable-buckets=x",
        "the argument ('x') for option '--hashtable-buckets' is invalid: expected a whole number",
    ),
    ("--threads=x", "the argument ('x') for option '--threads' is invalid: expected a whole number"),
    ("--gearmand-version=3", "--gearmand-version: '3' is none of 1.1, 2.0"),
    ("--gearmand-version=1.10", "--gearmand-version: '1.10' is none of 1.1, 2.0"),
    ("--worker-wakeup=-1", "the argument ('-1') for option '--worker-wakeup' is invalid"),
    ("--backlog=x", "the argument ('x') for option '--backlog' is invalid"),
    ("--file-descriptors=x", "the argument ('x') for option '--file-descriptors' is invalid"),
    ("--file-descriptors=-1", "the argument ('-1') for option '--file-descriptors' is invalid"),
    ("--job-handle-prefix=a b", "the argument ('a b') for option '--job-handle-prefix' is invalid"),
    ("--port=70000", "--listen: "),
    ("--port=nosuchservice", "--port: 'nosuchservice' is neither a number nor the name of a service"),
    ("--listen=a b", "--listen: "),
    ("--config-file=/does/not/exist", "cannot read the configuration file /does/not/exist: No such file"),
    ("@/does/not/exist", "cannot read the configuration file /does/not/exist: No such file"),
    ("--bogus", "unrecognised option '--bogus'"),
    ("--versio", "unrecognised option '--versio'"),
    ("-x", "unrecognised option '-x'"),
    ("-v", "unrecognised option '-v'; it was replaced by --verbose"),
    ("stray", "unrecognised option 'stray'"),
    ("-", "unrecognised option '-'"),
    ("--port", "the required argument for option '--port' is missing"),
    ("--port=", "the argument for option '--port' should follow immediately after the equal sign"),
    ("--daemon=yes", "option '--daemon' does not take any arguments"),
]


def accepted(*words: str) -> Result:
    result = gearmand(*words)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize(("word", "expected"), EFFECTS, ids=[word for word, _ in EFFECTS])
def test_an_option_has_its_effect(service: Service, word: str, expected: Mapping[str, object]) -> None:
    result = accepted(word)
    changed = settings_of(service.config)
    assert changed == expected
    assert result.stderr.count("warning:") == 1  # the one about listening
    assert LOOPBACK_ONLY in result.stderr


@pytest.mark.parametrize(("word", "expected"), PROCESS, ids=[word for word, _ in PROCESS])
def test_an_option_is_for_the_process(service: Service, word: str, expected: ProcessOptions) -> None:
    accepted(word)
    assert service.process == expected
    assert settings_of(service.config) == {}


@pytest.mark.parametrize("word", WARNINGS)
def test_an_option_without_meaning_is_accepted_with_a_warning(service: Service, word: str) -> None:
    result = accepted(word)
    name = "--threads" if word.startswith("-t") else word.partition("=")[0]
    lines = [line for line in result.stderr.splitlines() if LOOPBACK_ONLY not in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"switchgear gearmand: warning: {name} has no effect: ")
    assert settings_of(service.config) == {}


@pytest.mark.parametrize(("word", "complaint"), REFUSALS, ids=[word for word, _ in REFUSALS])
@pytest.mark.parametrize("checking", [[], ["--check-args"]])
def test_what_cannot_be_had_is_refused(service: Service, word: str, complaint: str, checking: list[str]) -> None:
    result = gearmand(*checking, word)
    assert result.exit_code == 1  # gearmand's only code for failure
    assert result.stderr.startswith(f"switchgear gearmand: {complaint}")
    assert result.stderr.count("\n") == 1
    assert service.config is None


def test_every_option_is_in_one_of_the_tables() -> None:
    elsewhere = {
        "ssl-ca-file",
        "ssl-certificate",
        "ssl-key",
        "help",
        "version",
        "check-args",
        "config-file",
        "listen",
        "port",
    }
    words = [word for word, _ in (*EFFECTS, *PROCESS, *REFUSALS)] + WARNINGS
    seen = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    assert set(FLAGS) - seen == elsewhere - seen


def test_the_installed_gearmand_has_no_option_that_is_unknown_here() -> None:
    program = shutil.which("gearmand") or "/usr/sbin/gearmand"
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  (?:-(\w) \[ )?--([a-z0-9-]+)( \])?( arg)?", text, re.MULTILINE)
    assert len(listed) > 40
    for short, name, _, argument in listed:
        assert name in FLAGS
        assert (FLAGS[name].short, bool(FLAGS[name].argument)) == (short, bool(argument)), name


# --- where to listen


@pytest.mark.parametrize(
    ("words", "environ", "url"),
    [
        ([], {}, "gearman://127.0.0.1:4730"),
        (["-p", "4731"], {}, "gearman://127.0.0.1:4731"),
        (["-p", "0"], {}, "gearman://127.0.0.1:0"),
        ([], {"GEARMAND_PORT": "4732"}, "gearman://127.0.0.1:4732"),
        (["--port=4731"], {"GEARMAND_PORT": "4732"}, "gearman://127.0.0.1:4731"),
        (["-L", "0.0.0.0"], {}, "gearman://0.0.0.0:4730"),
        (["-L", "localhost", "-p4731"], {}, "gearman://localhost:4731"),
        (["-L", "::"], {}, "gearman://[::]:4730"),
        (["-L", "[::1]"], {}, "gearman://[::1]:4730"),
        (["--listen=jobs.example.org"], {"GEARMAND_PORT": "4732"}, "gearman://jobs.example.org:4732"),
        ([], {"SWITCHGEAR_LISTEN": "gearman://[::1]:9"}, "gearman://[::1]:9"),
        (["-p", "4731"], {"SWITCHGEAR_LISTEN": "gearman://[::1]:9"}, "gearman://127.0.0.1:4731"),
    ],
)
def test_where_it_listens(
    service: Service, monkeypatch: pytest.MonkeyPatch, words: list[str], environ: dict[str, str], url: str
) -> None:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    result = accepted(*words)
    assert service.config is not None
    assert [str(listener) for listener in service.config.listen] == [url]
    # An address that was named needs no comment, whatever it is.
    named = any(word.startswith(("-L", "--listen")) for word in words)
    assert (LOOPBACK_ONLY in result.stderr) is not named


def test_a_port_may_be_a_service(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getservbyname", lambda name, protocol: {"gearman": 4730}[name])
    accepted("-p", "gearman")
    assert service.config is not None
    assert service.config.listen[0].port == 4730


# --- gearmand's defaults and manners


def test_the_defaults_are_gearmands(service: Service, tmp_path: Path) -> None:
    accepted()
    config = service.config
    assert config is not None
    assert (config.engine.wakeups, config.engine.attempts, config.engine.function_order) == (0, 0, "registration")
    assert (config.store_url, config.gearman.exceptions) == ("memory:", False)
    assert (config.gearman.sleep_ends_time_limits, config.listen_retry_seconds) == (True, 22)
    assert (config.log.level, config.log.file) == ("error", str(tmp_path / "gearmand.log"))
    assert service.process == ProcessOptions()
    assert service.descriptors == [config.limits.connections]


@pytest.mark.parametrize(
    ("words", "attempts"),
    [
        ([], 0),
        (["--job-retries=-1"], 0),
        (["--job-retries=0"], 1),
        (["--job-retries=1"], 1),
        (["--job-retries=255"], 255),
    ],
)
def test_the_attempts_of_version_2(service: Service, words: list[str], attempts: int) -> None:
    accepted("--gearmand-version=2.0", *words)
    assert service.config is not None
    assert service.config.engine.attempts == attempts


def test_version_2_takes_no_more_retries_than_it_can_count(service: Service) -> None:
    result = gearmand("--gearmand-version=2.0", "--job-retries=256")
    assert result.exit_code == 1
    assert "'--job-retries' is invalid: expected a whole number from -1 to 255" in result.stderr


def test_round_robin_changes_nothing_in_version_2(service: Service) -> None:
    accepted("--gearmand-version=2.0", "--round-robin")
    assert service.config is not None
    assert service.config.engine.function_order == "fair"


def test_the_environment_goes_before_gearmands_defaults(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_ENGINE_WAKEUPS", "1")
    monkeypatch.setenv("SWITCHGEAR_STORE", "sqlite:/tmp/kept.db")
    monkeypatch.setenv("SWITCHGEAR_LIMITS_PACKET_BYTES", "1MiB")
    accepted()
    assert settings_of(service.config) == {
        "engine.wakeups": 1,
        "store": "sqlite:/tmp/kept.db",
        "limits.packet_bytes": 2**20,
    }
    accepted("-w", "5", "-q", "builtin")
    assert settings_of(service.config)["engine.wakeups"] == 5
    assert "store" not in settings_of(service.config)


@pytest.mark.parametrize("kind", ["libsqlite3", "LibSQLite3"])
def test_jobs_are_kept_in_a_file(service: Service, kind: str) -> None:
    result = accepted("-q", kind, "--libsqlite3-db=/tmp/jobs.db", "-L", "127.0.0.1")
    assert settings_of(service.config) == {"store": "sqlite:/tmp/jobs.db", "allow_remote": True}
    assert result.stderr == ""


def test_descriptors_that_were_asked_for_are_not_raised_again(service: Service) -> None:
    accepted("-f", "500")
    assert service.descriptors == []


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--port=1"], {"port": "1"}),
        (["--port", "1"], {"port": "1"}),
        (["-p", "1"], {"port": "1"}),
        (["-p1"], {"port": "1"}),
        (["-dR"], {"daemon": "", "round-robin": ""}),
        (["-dRp1"], {"daemon": "", "round-robin": "", "port": "1"}),
        (["-dRp", "1"], {"daemon": "", "round-robin": "", "port": "1"}),
        (["-j", "-1"], {"job-retries": "-1"}),
        (["--keepalive-idle", "-1", "-d"], {"keepalive-idle": "-1", "daemon": ""}),
        (["--libpq-conninfo=host=x port=y"], {"libpq-conninfo": "host=x port=y"}),
        (["@file"], {"config-file": "file"}),
        ([], {}),
    ],
)
def test_how_options_may_be_written(words: list[str], given: dict[str, str]) -> None:
    assert parse_words(words) == given


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-p", "1", "--port=2"], "option '--port' cannot be specified more than once"),
        (["-R", "-R"], "option '--round-robin' cannot be specified more than once"),
        (["--port", "--daemon"], "the required argument for option '--port' is missing"),
        (["-p", "-d"], "the required argument for option '--port' is missing"),
        (["-dx"], "unrecognised option '-dx'"),
        (["--"], "unrecognised option '--'"),
    ],
)
def test_how_options_may_not_be_written(words: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_words(words)
    assert str(caught.value) == complaint


# --- the configuration file


@pytest.mark.parametrize(
    ("text", "given", "strays"),
    [
        ("--port=1 --verbose INFO\r\n-R\n", {"port": "1", "verbose": "INFO", "round-robin": ""}, []),
        ("# a comment --port=1\n--port=2 # and --daemon\n", {"port": "2"}, []),
        ("port=1\n--daemon", {"daemon": ""}, ["port=1"]),
        ("--verb=INFO --job-r 3", {"verbose": "INFO", "job-retries": "3"}, []),
        ("", {}, []),
    ],
)
def test_a_configuration_file(text: str, given: dict[str, str], strays: list[str]) -> None:
    heard: list[str] = []
    assert parse_file(text, heard.append) == given
    assert heard == strays


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "--keepalive-i=3",
            "option '--keepalive-i=3' is ambiguous; it could be --keepalive-idle, --keepalive-interval",
        ),
        ("--bogus", "unrecognised option '--bogus'"),
        ("--check-args", "unrecognised option '--check-args'"),
    ],
)
def test_a_wrong_configuration_file(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_file(text, lambda word: None)
    assert str(caught.value) == complaint


def test_the_command_line_wins_over_the_file(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "other.conf"
    file.write_text("--port=4731 --worker-wakeup=2\nlisten=0.0.0.0\n--listen 127.0.0.1")
    for words in (["--config-file", str(file)], [f"@{file}"]):
        result = accepted(*words, "--port=4732")
        assert service.config is not None
        assert str(service.config.listen[0]) == "gearman://127.0.0.1:4732"
        assert service.config.engine.wakeups == 2
        assert result.stderr == (
            f"switchgear gearmand: warning: {file}: 'listen=0.0.0.0' is not an option and is left out\n"
        )


def test_the_usual_file_is_read_if_it_is_there(service: Service, tmp_path: Path) -> None:
    (tmp_path / "gearmand.conf").write_text("--port=4731")
    accepted()
    assert service.config is not None
    assert service.config.listen[0].port == 4731


def test_a_reload_reads_the_file_again(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "gearmand.conf"
    file.write_text("--job-retries=4")
    accepted("--worker-wakeup=2")
    file.write_text("--job-retries=5")
    assert service.reload is not None
    again = service.reload()
    assert (again.engine.attempts, again.engine.wakeups) == (5, 2)


# --- log


def test_a_log_file_that_cannot_be_written_is_no_reason_not_to_serve(service: Service) -> None:
    result = accepted("--log-file=/does/not/exist.log", "--listen=localhost")
    assert result.stderr == (
        "switchgear gearmand: warning: cannot write the log file /does/not/exist.log"
        " (No such file or directory); logging to standard error\n"
    )
    assert settings_of(service.config)["log.file"] == ""


def test_a_log_file_is_used(service: Service, tmp_path: Path) -> None:
    accepted(f"--log-file={tmp_path / 'x.log'}")
    assert settings_of(service.config) == {"log.file": str(tmp_path / "x.log")}


@pytest.mark.parametrize(("more", "warned"), [([], True), (["--syslog"], False)])
def test_a_daemon_that_logs_to_standard_error_logs_nowhere(service: Service, more: list[str], warned: bool) -> None:
    result = accepted("-d", "--log-file=stderr", *more)
    assert ("there is no log once the server is in the background" in result.stderr) is warned


# --- the rest


def test_checking_does_not_serve(service: Service) -> None:
    result = accepted("--check-args", "--threads=4", "--listen=0.0.0.0")
    assert service.config is None
    assert "--threads has no effect" in result.stderr


@pytest.mark.parametrize("word", ["-V", "--version", "-dV"])
def test_the_version_is_honest_about_the_name(service: Service, word: str) -> None:
    result = accepted(word)
    assert re.fullmatch(r"\nswitchgear \d+\.\d+\.\d+, in place of gearmand 1\.1\.20\n", result.stdout)
    assert service.config is None


def test_the_version_names_the_rules_it_follows(service: Service) -> None:
    assert accepted("--version", "--gearmand-version=2.0").stdout.endswith("in place of gearmand 2.0\n")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_the_help_names_every_option(service: Service, word: str) -> None:
    result = accepted(word)
    text = re.sub(r"-\n\s+", "-", result.stdout)  # names may be broken at a hyphen
    for name in FLAGS:
        assert f"--{name}" in text
    assert "Examples:" in text
    assert service.config is None


def test_the_servers_exit_code_is_passed_on(service: Service) -> None:
    service.ending = 7
    assert gearmand().exit_code == 7


def test_a_store_that_cannot_be_opened_is_told(service: Service) -> None:
    service.ending = StorageError("jobs.db was not written by switchgear")
    result = gearmand("--listen=localhost")
    assert (result.exit_code, result.stderr) == (1, "switchgear: jobs.db was not written by switchgear\n")


def test_secrets_are_not_repeated(service: Service) -> None:
    assert "hunter2" not in accepted("--mysql-password=hunter2", "--redis-password", "hunter2").output


def test_the_manual_has_the_table_of_options() -> None:
    assert flags_table() in MANUAL.read_text(encoding="utf-8"), (
        "docs/howto/replace-gearmand.md is out of date; the table comes from"
        " python -c 'from switchgear.cli.gearmand_flags import flags_table; print(flags_table())'"
    )


# --- TLS


def test_tls_files_come_from_options_and_variables() -> None:
    settings = translate(
        {"ssl": "", "ssl-certificate": "a.pem"}, {"GEARMAND_SERVER_KEY": "k", "GEARMAND_SERVER_PEM": "b"}
    )
    urls = settings.flags["listen"]
    assert isinstance(urls, tuple)
    assert urls[0].options == {"tls": "yes", "cert": "a.pem", "key": "k"}
    settings = translate({"ssl-ca-file": "ca.pem"}, {"GEARMAND_SERVER_PEM": "b"})
    assert settings.warnings == ["--ssl-ca-file has no effect without --ssl"]
    assert "listen" not in settings.flags


@pytest.mark.parametrize(
    ("words", "listen"),
    [
        (["-rhttp"], ["gearman://127.0.0.1:4730", "http://127.0.0.1:8080?api=gearmand"]),
        (
            ["--protocol=http", "--http-port=8081", "-p4731", "--listen=::1"],
            ["gearman://[::1]:4731", "http://[::1]:8081?api=gearmand"],
        ),
        (["--http-port=8081", "-p4731"], ["gearman://127.0.0.1:4731"]),
    ],
)
def test_the_protocol_module_http_has_a_listener_of_its_own(
    service: Service, words: list[str], listen: list[str]
) -> None:
    result = gearmand(*words)
    assert result.exit_code == 0, result.output
    assert service.config is not None
    assert [str(url) for url in service.config.listen] == listen
    assert ("--http-port has no effect" in result.output) == (len(listen) == 1)


def test_the_port_of_the_module_is_checked(service: Service) -> None:
    assert "--http-port: 'x' is neither a number" in gearmand("-rhttp", "--http-port=x").output
