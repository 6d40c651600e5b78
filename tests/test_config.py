"""Configuration: what is read from where, who wins, and how mistakes are told."""

from __future__ import annotations

import os
import pwd
import tomllib
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from switchgear.config import (
    SETTINGS,
    Config,
    LimitsConfig,
    ListenUrl,
    LogConfig,
    as_json,
    as_toml,
    changed_but_not_reloadable,
    default_state_dir,
    load_config,
    options_table,
    read_config,
    reloaded,
    settings_table,
)
from switchgear.config.loading import config_of
from switchgear.config.setting_types import Size
from switchgear.errors import ConfigError
from switchgear.units import MIB

MANUAL = Path(__file__).parents[1] / "docs" / "howto" / "configure.md"
HOME = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def _as_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def toml_file(directory: Path, text: str) -> Path:
    path = directory / "server.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(
    file: Path | None = None, environ: Mapping[str, str] = HOME, flags: Mapping[str, object] | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ, flags or {})
    return str(caught.value).splitlines()


# --- listening addresses


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("gearman://127.0.0.1:4730", "127.0.0.1", 4730, True),
        ("gearman://127.0.0.1", "127.0.0.1", 4730, True),
        ("gearman://127.0.0.1:", "127.0.0.1", 4730, True),
        ("gearman://127.9.8.7:1", "127.9.8.7", 1, True),
        ("gearman://localhost:0", "localhost", 0, True),
        ("gearman://LOCALHOST/", "LOCALHOST", 4730, True),
        ("GEARMAN://[::1]:65535", "::1", 65535, True),
        ("gearman://[::ffff:127.0.0.1]", "::ffff:127.0.0.1", 4730, True),
        ("gearman://[::]:4730", "::", 4730, False),
        ("gearman://[fe80::1%eth0]:4730", "fe80::1%eth0", 4730, False),
        ("gearman://0.0.0.0", "0.0.0.0", 4730, False),
        ("gearman://192.168.1.5:4731", "192.168.1.5", 4731, False),
        ("gearman://jobs.example.org", "jobs.example.org", 4730, False),
        # A name is not looked up, so it does not count as safe.
        ("gearman://loopback", "loopback", 4730, False),
    ],
)
def test_a_listening_address(text: str, host: str, port: int, loopback: bool) -> None:
    url = ListenUrl.parse(text)
    assert (url.scheme, url.host, url.port, url.is_loopback) == ("gearman", host, port, loopback)
    assert ListenUrl.parse(str(url)) == url
    assert hash(ListenUrl.parse(str(url))) == hash(url)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not of the form"),
        ("4730", "not of the form"),
        ("127.0.0.1:4730", "not of the form"),
        ("gearman:127.0.0.1", "not of the form"),
        ("gearman://me@127.0.0.1", "not of the form"),
        ("gearman://127.0.0.1:x", "not of the form"),
        ("gearman://127.0.0.1:-1", "not of the form"),
        ("gearman://127.0.0.1:4730/path", "not of the form"),
        ("gearman://127.0.0.1#f", "not of the form"),
        ("gearman://::1:4730", "not of the form"),
        ("gearman://127.0.0.1:65536", "the largest is 65535"),
        ("gearman://:4730", "names no address"),
        ("gearman://*:4730", "names no address"),
        ("gearman://[]:4730", "names no address"),
        ("gearman://[127.0.0.1]", "not an IPv6 address"),
        ("gearman://a b", "neither an address nor a name"),
        ("gearmand://127.0.0.1", "unknown scheme gearmand; did you mean gearman?"),
        ("https://127.0.0.1", "unknown scheme https; did you mean http with the options tls=yes, cert and key?"),
        (
            "gearmans://127.0.0.1",
            "unknown scheme gearmans; did you mean gearman with the options tls=yes",
        ),
        ("ftp://127.0.0.1", "unknown scheme ftp (known: gearman, wmp, pingpong, dwork, gearmonkey, http, redis, "),
        ("gearman://127.0.0.1?tls=1", "option tls: '1' is neither yes nor no"),
        (
            "gearman://127.0.0.1?access=all",
            "option access: 'all' is none of open, anonymous, token, certificate, curve",
        ),
        ("gearman://127.0.0.1?access=open,token", "open means that every peer may do everything, and stands alone"),
        ("dwork://127.0.0.1?tls=yes", "unknown option tls"),
    ],
)
def test_a_wrong_listening_address_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        ListenUrl.parse(text)
    assert complaint in str(caught.value)


# --- values


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limits.packet_bytes", "65536", 65536),
        ("limits.packet_bytes", "64KiB", 65536),
        ("limits.packet_bytes", "1 MiB", 2**20),
        ("limits.packet_bytes", "1.5gib", 3 * 2**29),
        ("limits.packet_bytes", "1MB", 1_000_000),
        ("limits.packet_bytes", "70_000b", 70_000),
        ("limits.jobs", "1_000", 1000),
        ("limits.jobs", " 7 ", 7),
        ("limits.slow_reader_seconds", "2.5", 2.5),
        ("limits.slow_reader_seconds", "1500ms", 1.5),
        ("limits.keepalive_idle_seconds", "5m", 300),
        ("drain_timeout_seconds", "30s", 30.0),
        ("drain_timeout_seconds", "1h", 3600.0),
        ("storage.keep_finished_seconds", "1d", 86_400),
        ("gearman.exceptions", "yes", True),
        ("gearman.exceptions", "TRUE", True),
        ("gearman.exceptions", "1", True),
        ("gearman.exceptions", "off", False),
        ("gearman.handle_prefix", "H:alpha", "H:alpha"),
        ("log.level", "DEBUG", "debug"),
        ("engine.function_order", "round-robin", "round-robin"),
        ("store", "memory:", "memory:"),
        ("store", "sqlite:/x/y.db", "sqlite:/x/y.db"),
        ("store", "sqlite:~/y.db", "sqlite:/home/ada/y.db"),
        ("state_dir", "~/state", Path("/home/ada/state")),
        ("log.file", "~/server.log", "/home/ada/server.log"),
        ("log.file", "~ada/server.log", "~ada/server.log"),
        (
            "listen",
            "gearman://127.0.0.1:1, gearman://[::1]:2,",
            (ListenUrl("gearman", "127.0.0.1", 1), ListenUrl("gearman", "::1", 2)),
        ),
    ],
)
def test_text_is_read_alike_from_environment_and_flags(name: str, text: str, value: object) -> None:
    setting = SETTINGS[name]
    from_environment = read_config(None, {**HOME, setting.environment: text}, {})
    from_flag = read_config(None, HOME, {name: text})
    assert setting.value_in(from_environment.config) == setting.value_in(from_flag.config) == value
    assert type(setting.value_in(from_flag.config)) is type(value)
    assert from_environment.sources[name] == f"the environment variable {setting.environment}"
    assert from_flag.sources[name] == (setting.flag or f"--set {name}")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("limits.packet_bytes", "-1", 'expected a number of bytes such as 65536 or "64KiB", from 64 to 4294967295'),
        ("limits.packet_bytes", "5GiB", "expected a number of bytes"),
        ("limits.packet_bytes", "64Mx", "expected a number of bytes"),
        ("limits.packet_bytes", "0.5", "expected a number of bytes"),
        ("limits.packet_bytes", "100.5B", "expected a number of bytes"),
        ("limits.packet_bytes", "inf", "expected a number of bytes"),
        ("limits.connections", "0", "expected a whole number, from 1 to 1000000"),
        ("limits.jobs", "many", "expected a whole number, 0 or more"),
        ("limits.jobs", "1e3", "expected a whole number"),
        ("limits.jobs", "٣", "expected a whole number"),
        ("limits.jobs", "9223372036854775808", "expected a whole number"),
        ("drain_timeout_seconds", "30 parsecs", "expected a number of seconds"),
        ("drain_timeout_seconds", "-1", "expected a number of seconds"),
        ("drain_timeout_seconds", "nan", "expected a number of seconds"),
        ("limits.keepalive_idle_seconds", "1500ms", "expected a number of whole seconds"),
        ("gearman.exceptions", "perhaps", "expected true or false"),
        ("gearman.handle_prefix", "H: x", "visible ASCII"),
        ("gearman.handle_prefix", "H" * 43, "at most 42"),
        ("gearman.shutdown", "sometimes", "expected one of same-user, loopback, anywhere, never"),
        ("store", "sqlite:", "expected sqlite:PATH, postgresql://USER@HOST/DATABASE, memory: or nothing"),
        ("store", "memory", "expected sqlite:PATH"),
        ("store", "memory:x", "expected sqlite:PATH"),
        ("store", "redis://localhost", "expected sqlite:PATH"),
        ("listen", "gearmand://127.0.0.1", "did you mean gearman?"),
        ("http.redact", "f:", "expected a list of GLOB (of functions) or GLOB:FIELD"),
        ("http.redact", ":password", "expected a list of GLOB"),
        ("listen", ",", "expected one or more URLs"),
        ("listen", "gearman://127.0.0.1,gearman://127.0.0.1:4730", "is there twice"),
    ],
)
def test_a_wrong_value_names_setting_expectation_and_source(name: str, text: str, expected: str) -> None:
    setting = SETTINGS[name]
    (line,) = problems(environ={**HOME, setting.environment: text})
    assert line.startswith(f"{name}: ")
    assert expected in line
    assert line.endswith(f"(from the environment variable {setting.environment})")
    (line,) = problems(flags={name: text})
    assert line.endswith(f"(from {setting.flag or '--set ' + name})")


def test_rules_of_redaction(tmp_path: Path) -> None:
    file = toml_file(tmp_path, '[http]\nredact = ["payroll.*", "*:pass:word"]\n')
    loaded = read_config(file, HOME, {})
    assert loaded.config.http.redact == ("payroll.*", "*:pass:word")
    assert 'redact = ["payroll.*", "*:pass:word"]' in as_toml(loaded)
    assert {"name": "http.redact", "value": ["payroll.*", "*:pass:word"]}.items() <= as_json(loaded)[
        list(SETTINGS).index("http.redact")
    ].items()
    for text, rules in ((" payroll.* ,, *:pass:word ", loaded.config.http.redact), ("", ())):
        assert load_config(None, {**HOME, "SWITCHGEAR_HTTP_REDACT": text}, {}).http.redact == rules
    assert problems(toml_file(tmp_path, "[http]\nredact = [1]\n"))[0].startswith("http.redact: expected a list")


def test_what_was_given_is_part_of_the_message(tmp_path: Path) -> None:
    file = toml_file(tmp_path, "[limits]\npacket_bytes = -1\n")
    assert problems(file) == [
        'limits.packet_bytes: expected a number of bytes such as 65536 or "64KiB", from 64 to 4294967295, got -1'
        f" (from {file})"
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[engine]\nattempts = "3"', 'engine.attempts: expected a whole number, from 0 to 2147483647, got "3"'),
        ("[engine]\nattempts = 3.0", "engine.attempts: expected a whole number, from 0 to 2147483647, got 3.0"),
        ("[engine]\nattempts = true", "got true"),
        ("[engine]\nattempts = [1]", "got a list"),
        ("[engine]\nattempts = {a = 1}", "got a table"),
        ("[limits]\nslow_reader_seconds = nan", "got nan"),
        ("[limits]\nslow_reader_seconds = inf", "got inf"),
        ("[limits]\npacket_bytes = 1.5", "got 1.5"),
        ('[gearman]\nexceptions = "yes"', 'gearman.exceptions: expected true or false, got "yes"'),
        ("[gearman]\nexceptions = 1", "got 1"),
        ("store = 5", "store: expected sqlite:PATH, postgresql://USER@HOST/DATABASE, memory: or nothing, got 5"),
        ("listen = 4730", "got 4730"),
        ("listen = []", "got a list"),
        ("listen = [4730]", "got a list"),
        ("state_dir = ''", 'state_dir: expected a path, got ""'),
        ("log = 'debug'", 'server.toml: log: expected a table, got "debug"'),
        ("[limits]\npacket_byte = 1", "unknown key limits.packet_byte; did you mean limits.packet_bytes?"),
        ("packet_bytes = 1", "unknown key packet_bytes; did you mean limits.packet_bytes?"),
        ("[limit]\njobs = 1", "unknown section [limit]; did you mean [limits]?"),
        ("[xyzzy]\na = 1", "unknown section [xyzzy]"),
        ("colour = 'red'", "unknown key colour"),
        ("[store]\nurl = 1", "got a table"),
        ("listen = [", "not valid TOML"),
        ("listen = " + "[" * 3000, "server.toml: not valid TOML: nested too deeply"),
        ("listen = " + "1" * 5000, "server.toml: not valid TOML: a number has too many digits"),
        (f"[log]\nlevel = '{'x' * 500}'", "..."),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, complaint: str) -> None:
    file = toml_file(tmp_path, text)
    (line,) = problems(file)
    assert complaint in line
    assert str(file) in line
    assert len(line) < 400


def test_the_largest_packet_must_fit_into_memory() -> None:
    Config(limits=LimitsConfig(memory_bytes=4 * MIB, packet_bytes=MIB))
    with pytest.raises(ConfigError, match=r"limits.memory_bytes: expected at least 4 times limits.packet_bytes"):
        Config(limits=LimitsConfig(memory_bytes=4 * MIB - 1, packet_bytes=MIB))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert problems(missing) == [f"{missing}: cannot be read: No such file or directory"]
    assert problems(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert problems(binary) == [f"{binary}: not valid TOML: not UTF-8"]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    file = toml_file(tmp_path, "[limits]\npacket_byte = 1\njobs = -1\n")
    lines = problems(file, {"SWITCHGEAR_LISTN": "x", "SWITCHGEAR_LOG_LEVEL": "loud"}, {"nothing.here": "1"})
    assert len(lines) == 5


# --- the environment


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("SWITCHGEAR_LISTN", "SWITCHGEAR_LISTEN"),
        ("SWITCHGEAR_PACKET_BYTES", "SWITCHGEAR_LIMITS_PACKET_BYTES"),
        ("SWITCHGEAR_LIMITS_PACKET_BYTE", "SWITCHGEAR_LIMITS_PACKET_BYTES"),
        ("SWITCHGEAR_CONFG", "SWITCHGEAR_CONFIG"),
    ],
)
def test_an_unknown_variable_suggests_the_right_one(variable: str, hint: str) -> None:
    assert problems(environ={variable: "1"}) == [f"unknown environment variable {variable}; did you mean {hint}?"]


@pytest.mark.parametrize(
    "variable",
    [
        "SWITCHGEAR_DEBUG",
        "SWITCHGEAR_PURE",
        "SWITCHGEAR_SERVER",
        "SWITCHGEAR_URL",
        "SWITCHGEAR_HANDLE",
        "SWITCHGEAR_FUNCTION",
        "SWITCHGEAR_UNIQUE",
        "SWITCHGEAR_SERVICE_HOST",
        "SWITCHGEAR_SERVICE_PORT",
        "SWITCHGEAR_SERVICE_PORT_GEARMAN",
        "SWITCHGEAR_PORT_4730_TCP",
        "SWITCHGEAR_PORT_4730_TCP_ADDR",
        "PATH",
    ],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    load_config(None, {**HOME, variable: "anything"}, {})


def test_a_port_from_kubernetes_is_not_a_persons_mistake() -> None:
    load_config(None, {**HOME, "SWITCHGEAR_PORT": "tcp://10.0.0.1:4730"}, {})
    assert problems(environ={"SWITCHGEAR_PORT": "4731"})


def test_an_empty_variable_counts_as_not_set() -> None:
    loaded = read_config(None, {**HOME, "SWITCHGEAR_LIMITS_JOBS": "", "SWITCHGEAR_CONFIG": ""}, {})
    assert loaded.sources["limits.jobs"] == "default"


def test_every_setting_has_its_own_variable() -> None:
    variables = {setting.environment for setting in SETTINGS.values()}
    assert len(variables) == len(SETTINGS)
    assert "SWITCHGEAR_LIMITS_PACKET_BYTES" in variables


# --- who wins


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = toml_file(tmp_path, "[engine]\nattempts = 11\nwakeups = 12\n[limits]\njobs = 13\n")
    environ = {**HOME, "SWITCHGEAR_ENGINE_ATTEMPTS": "21", "SWITCHGEAR_ENGINE_WAKEUPS": "22"}
    loaded = read_config(
        file, environ, {"engine.attempts": "31", "limits.functions": None}, defaults={"store": "memory:"}
    )
    assert loaded.config.engine.attempts == 31
    assert loaded.config.engine.wakeups == 22
    assert loaded.config.limits.jobs == 13
    assert loaded.config.limits.functions == 10_000
    assert loaded.config.store == "memory:"
    names = ("engine.attempts", "engine.wakeups", "limits.jobs", "limits.functions", "store")
    assert [loaded.sources[name] for name in names] == [
        "--set engine.attempts",
        "the environment variable SWITCHGEAR_ENGINE_WAKEUPS",
        str(file),
        "default",
        "the command's default",
    ]


def test_the_environment_may_name_the_file_and_the_flag_wins(tmp_path: Path) -> None:
    file = toml_file(tmp_path, "[engine]\nattempts = 11\n")
    other = tmp_path / "other.toml"
    other.write_text("[engine]\nattempts = 12\n", encoding="utf-8")
    environ = {**HOME, "SWITCHGEAR_CONFIG": str(file)}
    assert load_config(None, environ, {}).engine.attempts == 11
    assert load_config(other, environ, {}).engine.attempts == 12


def test_a_mistake_in_a_layer_that_loses_is_still_told(tmp_path: Path) -> None:
    file = toml_file(tmp_path, "[engine]\nattempts = -1\n")
    assert len(problems(file, flags={"engine.attempts": "3"})) == 1


# --- the object


def test_the_defaults() -> None:
    config = load_config(None, HOME, {})
    assert [str(url) for url in config.listen] == [
        "gearman://127.0.0.1:4730",
        "wmp://127.0.0.1:5714",
        "pingpong://127.0.0.1:5562",
        "dwork://127.0.0.1:6125",
        "gearmonkey://127.0.0.1:6380",
        "http://127.0.0.1:4740",
    ]
    assert config.store_url == "sqlite:/home/ada/.local/state/switchgear/switchgear.db"
    assert config.limits.packet_bytes == 64 * 2**20
    assert config.storage.sync == "full"
    assert config == Config(state_dir=Path("/home/ada/.local/state/switchgear"))


@pytest.mark.parametrize(
    ("uid", "environ", "expected"),
    [
        (0, {"HOME": "/root", "XDG_STATE_HOME": "/x"}, "/var/lib/switchgear"),
        (1000, {"HOME": "/home/ada", "XDG_STATE_HOME": "/x"}, "/x/switchgear"),
        (1000, {"HOME": "/home/ada", "XDG_STATE_HOME": "x"}, "/home/ada/.local/state/switchgear"),
        (1000, {"HOME": "/home/ada"}, "/home/ada/.local/state/switchgear"),
        (1000, {}, "/from/passwd/.local/state/switchgear"),
        (4242, {}, "/var/lib/switchgear"),
    ],
)
def test_the_state_directory(monkeypatch: pytest.MonkeyPatch, uid: int, environ: dict[str, str], expected: str) -> None:
    def passwd(number: int) -> SimpleNamespace:
        if number == 4242:
            raise KeyError(number)
        return SimpleNamespace(pw_dir="/from/passwd")

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwuid", passwd)
    assert default_state_dir(environ) == Path(expected)


def test_a_remote_listener_needs_permission() -> None:
    flags: dict[str, object] = {"listen": ["gearman://127.0.0.1", "gearman://0.0.0.0:4730"]}
    (line,) = problems(flags=flags)
    assert line.startswith("listen: other machines can reach gearman://0.0.0.0:4730")
    assert "--allow-remote" in line
    assert line.endswith("(from --listen)")
    assert len(load_config(None, HOME, {**flags, "allow_remote": True}).listen) == 2


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().store = "memory:"  # type: ignore[misc]


def test_made_by_hand_it_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"packet_bytes: expected .*, got -1"):
        LimitsConfig(packet_bytes=-1)
    with pytest.raises(ConfigError, match="other machines can reach"):
        replace(Config(), listen=(ListenUrl("gearman", "::", 4730),))
    with pytest.raises(ConfigError, match="listen: expected"):
        Config(listen=())
    assert Config(store="memory:").store_url == "memory:"


@pytest.mark.parametrize(
    ("store", "given", "url"),
    [
        ("", "", "sqlite:/state/joblog.db"),
        ("sqlite:/state/switchgear.db", "", "sqlite:/state/joblog.db"),
        ("sqlite:/data/jobs.db", "", "sqlite:/data/jobs-log.db"),
        ("sqlite:jobs", "", "sqlite:jobs-log.db"),
        ("memory:", "", ""),
        ("memory:", "sqlite:log.db", "sqlite:log.db"),
        ("postgresql://jobs@db/jobs", "", "postgresql://jobs@db/jobs"),
        ("", "off", ""),
        ("", "None", ""),
        ("", "postgresql://jobs@db/jobs", "postgresql://jobs@db/jobs"),
        ("", "postgres:///jobs?host=/run", "postgres:///jobs?host=/run"),
    ],
)
def test_where_the_job_log_is(store: str, given: str, url: str) -> None:
    config = load_config(None, HOME, {"store": store, "joblog.url": given, "state_dir": "/state"})
    assert config.joblog_url == url


@pytest.mark.parametrize("text", ["on", "sqlite:", "memory:", "postgresql:jobs", "mysql://db/jobs", "a\0b"])
def test_where_no_job_log_can_be(text: str) -> None:
    (line,) = problems(flags={"joblog.url": text})
    assert line.startswith("joblog.url: expected sqlite:PATH, postgresql://USER@HOST/DATABASE, off or nothing, got")


def test_a_job_log_may_be_at_home() -> None:
    assert load_config(None, HOME, {"joblog.url": "sqlite:~/log.db"}).joblog_url == "sqlite:/home/ada/log.db"


def test_what_a_reload_cannot_change_is_named() -> None:
    old = Config()
    new = replace(
        old,
        store="memory:",
        drain_timeout_seconds=5,
        log=LogConfig(level="debug", format="json"),
        limits=LimitsConfig(connections=5, backlog=5),
    )
    assert changed_but_not_reloadable(old, old) == []
    assert changed_but_not_reloadable(old, new) == ["store", "limits.backlog", "log.format"]


def test_reloadable_settings_are_these() -> None:
    fixed = {name for name, setting in SETTINGS.items() if not setting.reloadable}
    assert fixed == {
        "listen",
        "store",
        "state_dir",
        "allow_remote",
        "listen_retry_seconds",
        "limits.backlog",
        "engine.function_order",
        "engine.wake_policy",
        "zeromq.curve_key_file",
        "zeromq.curve_clients_dir",
        "zeromq.messages_per_peer",
        "zeromq.heartbeat_seconds",
        "zeromq.handshake_seconds",
        "gearman.handle_prefix",
        "gearman.exceptions",
        "gearman.sleep_ends_time_limits",
        "gearman.shutdown",
        "storage.sync",
        "storage.payload_memory_bytes",
        "joblog.url",
        "cluster.enabled",
        "cluster.name",
        "cluster.host",
        "cluster.lease_seconds",
        "cluster.allow_async",
        "cluster.mode",
        "cluster.link_port",
        "cluster.link_tls_ca",
        "cluster.link_tls_cert",
        "cluster.link_tls_key",
        "log.format",
        "access.file",
    }


# --- for readers


def test_shown_as_a_file_it_gives_the_same_values(tmp_path: Path) -> None:
    flags = {
        "listen": "gearman://[::1]:1,gearman://0.0.0.0:2",
        "allow_remote": "yes",
        "log.file": '/tmp/a "b" \\ ü\x7f.log',
        "limits.packet_bytes": "1000001",
        "limits.slow_reader_seconds": "1500ms",
    }
    loaded = read_config(None, {**HOME, "SWITCHGEAR_STORE": "memory:"}, flags)
    text = as_toml(loaded)
    again = read_config(toml_file(tmp_path, text), {}, {})
    assert again.config == loaded.config
    assert set(again.sources.values()) == {str(tmp_path / "server.toml")}


def test_shown_as_a_file_each_setting_has_its_words() -> None:
    text = as_toml(read_config(None, {**HOME, "SWITCHGEAR_ENGINE_ATTEMPTS": "5"}, {}))
    one_line = " ".join(text.replace("\n#  ", "").split())
    for setting in SETTINGS.values():
        assert setting.help in one_line
        assert setting.reason in one_line
    assert "# From: the environment variable SWITCHGEAR_ENGINE_ATTEMPTS. Default: 3. Taken up on SIGHUP." in text
    assert tomllib.loads(text)["engine"]["attempts"] == 5


def test_a_source_cannot_break_out_of_its_comment(tmp_path: Path) -> None:
    file = tmp_path / "a\nallow_remote = true\n.toml"
    file.write_text("store = 'memory:'\n", encoding="utf-8")
    assert tomllib.loads(as_toml(read_config(file, HOME, {})))["allow_remote"] is False


def test_shown_as_json_each_setting_is_there_once() -> None:
    entries = as_json(read_config(None, HOME, {"engine.attempts": "5"}))
    assert [entry["name"] for entry in entries] == list(SETTINGS)
    by_name = {entry["name"]: entry for entry in entries}
    assert by_name["engine.attempts"]["value"] == 5
    assert by_name["engine.attempts"]["source"] == "--set engine.attempts"
    assert by_name["listen"]["value"] == [str(url) for url in Config().listen]
    assert by_name["gearman.exceptions"]["value"] is False


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 2**20, 3 * 2**30, 10**9])
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    written = Size().toml(size)
    assert Size().read(tomllib.loads(f"x = {written}")["x"]) == size


def test_every_setting_says_what_and_why() -> None:
    for setting in SETTINGS.values():
        assert setting.help.endswith("."), setting.name
        assert setting.reason.endswith("."), setting.name
        assert "|" not in setting.help + setting.reason, setting.name


def test_the_manual_has_the_table_of_settings() -> None:
    assert options_table() in MANUAL.read_text(encoding="utf-8"), (
        "docs/howto/configure.md is out of date; the table comes from"
        " python -c 'from switchgear.config import options_table; print(options_table())'"
    )
    assert settings_table() in MANUAL.read_text(encoding="utf-8"), (
        "docs/howto/configure.md is out of date; the table comes from"
        " python -c 'from switchgear.config import settings_table; print(settings_table())'"
    )


def test_a_reload_leaves_alone_what_needs_a_restart() -> None:
    old = Config()
    new = replace(
        old,
        store="memory:",
        drain_timeout_seconds=5,
        log=LogConfig(level="debug", format="json"),
        limits=LimitsConfig(connections=5, backlog=5),
    )
    reload = reloaded(old, new)
    assert (reload.store, reload.limits.backlog, reload.log.format) == (old.store, old.limits.backlog, "text")
    assert (reload.drain_timeout_seconds, reload.limits.connections, reload.log.level) == (5, 5, "debug")


# --- TLS and identities


def listening(*urls: str, **settings: object) -> Config:
    return config_of({"listen": list(urls), **settings})


TLS = "tls=yes&cert=a.pem"


def test_with_tls_and_identities_other_machines_may_connect() -> None:
    listening(f"gearman://0.0.0.0?{TLS}&client_ca=ca.pem")
    listening(f"http://0.0.0.0?{TLS}", **{"access.file": "access.toml"})
    listening(f"gearmonkey://0.0.0.0?{TLS}&access=token,certificate", **{"access.file": "access.toml"})
    listening("gearman://127.0.0.1", **{"access.file": "access.toml"})
    listening("gearman://127.0.0.1?access=open")


@pytest.mark.parametrize(
    ("url", "file", "complaint"),
    [
        ("gearman://0.0.0.0", "", "which has no encryption or identities"),
        ("gearman://0.0.0.0", "access.toml", "which has no encryption"),
        (f"gearman://0.0.0.0?{TLS}", "", "which has no identities"),
        (f"gearman://0.0.0.0?{TLS}&access=open", "access.toml", "which has no identities"),
        ("gearman://127.0.0.1?access=token", "", "demands identities, and there is no access file"),
        ("gearman://127.0.0.1?tls=yes", "", "has tls=yes and names no certificate: cert=FILE"),
        ("gearman://127.0.0.1?key=a.key", "", "has key, and no tls=yes"),
        (f"gearman://127.0.0.1?{TLS}&access=certificate", "access.toml", "names no authority for them: client_ca=FILE"),
    ],
)
def test_what_a_listener_lacks_is_told(url: str, file: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        listening(url, **({"access.file": file} if file else {}))
    assert complaint in str(raised.value)


def test_whoever_says_so_may_listen_without_them() -> None:
    listening("gearman://0.0.0.0", allow_remote=True)
    listening(f"gearman://0.0.0.0?{TLS}", allow_remote=True)
