"""What a server derives from its configuration: the engine's settings, its handles, its wake policy and its files."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast

from switchgear.config import Config
from switchgear.engine.engine import EngineSettings
from switchgear.engine.wake_policy import WakePolicy
from switchgear.errors import ConfigError
from switchgear.model import SECOND_US
from switchgear.net.process.file_ownership import check_database
from switchgear.postgresql import connection_parameters, is_postgresql

__all__ = ["check_files", "databases", "engine_settings", "handle_prefix", "is_in_state_dir", "load_wake_policy"]


def is_in_state_dir(config: Config) -> bool:
    """Whether the store is in the state directory, which is created if missing; another directory may be mistyped."""
    return Path(config.store_url.partition(":")[2]).parent == config.state_dir


def handle_prefix(config: Config) -> str:
    """The prefix of handles, up to the last colon."""
    return config.gearman.handle_prefix or f"H:{socket.gethostname()}"


def engine_settings(config: Config) -> EngineSettings:
    return EngineSettings(
        attempts=config.engine.attempts,
        wakeups=config.engine.wakeups,
        function_order=config.engine.function_order,
        functions=config.limits.functions,
        schedules=config.limits.schedules,
        jobs=config.limits.jobs,
        jobs_per_function=config.limits.jobs_per_function,
        memory_bytes=config.limits.memory_bytes or machine_memory_bytes() // 2,
        jobs_per_worker=config.limits.jobs_per_worker,
        retention_us=int(config.storage.keep_finished_seconds * SECOND_US),
    )


def machine_memory_bytes() -> int:
    """The memory of the machine, or of the control group of this process if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no such group, or its limit is "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def load_wake_policy(name: str) -> WakePolicy | None:
    """The operator's wake policy, written MODULE:FUNCTION."""
    if not name:
        return None
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: a policy may be in the current directory
    try:
        policy = getattr(import_module(module_name), function_name)
    except Exception as error:  # whatever the operator's module raises
        raise ConfigError(f"engine.wake_policy: cannot load {name}: {type(error).__name__}: {error}") from error
    if not callable(policy):
        raise ConfigError(f"engine.wake_policy: {name} is not a function")
    return cast(WakePolicy, policy)


def check_files(config: Config) -> list[str]:
    """Problems with the files that a configuration names."""
    from switchgear.access.access_file import read_access_file
    from switchgear.net.connections.curve_keys import check_client_keys, load_server_keys
    from switchgear.net.connections.tls import ServerTls

    problems = []
    checks: list[Callable[[], object]] = [lambda: load_wake_policy(config.engine.wake_policy)]
    checks += [partial(check_database, path) for path in databases(config)]
    if is_postgresql(config.store_url):
        checks.append(lambda: connection_parameters(config.store_url, "store"))
    if config.access.file:
        checks.append(lambda: read_access_file(Path(config.access.file)))
    checks += [
        partial(ServerTls, url, has_identities=bool(config.access.file)) for url in config.listen if url.uses_tls
    ]
    if config.zeromq.curve_key_file:
        checks.append(lambda: load_server_keys(config.zeromq))
    if config.zeromq.curve_clients_dir:
        checks.append(lambda: check_client_keys(config.zeromq))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems.append(str(error))
    return problems


def databases(config: Config) -> list[Path]:
    """The files that a configuration names for jobs and the job log."""
    urls = (config.store_url, config.joblog_url)
    return [Path(url.removeprefix("sqlite:")) for url in urls if url.startswith("sqlite:")]
