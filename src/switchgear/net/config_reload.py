"""Applies what is read again while the server runs: its configuration, and its certificates, keys and access file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from switchgear.config import Config, changed_but_not_reloadable, reloaded
from switchgear.engine.engine import Engine
from switchgear.errors import ConfigError
from switchgear.net.listeners import Listeners
from switchgear.net.process.log_setup import configure_log
from switchgear.net.service_settings import engine_settings
from switchgear.telemetry import Telemetry

if TYPE_CHECKING:
    from switchgear.joblog.recorder import Recorder
    from switchgear.net.owners.member import OwnersMember

__all__ = ["reload_access", "reload_config"]


def reload_config(
    config: Config,
    load: Callable[[], Config],
    engine: Engine,
    listeners: Listeners,
    recorder: Recorder | None,
    telemetry: Telemetry,
) -> Config:
    """Read the configuration, and apply the settings that can be changed while running.

    Returns the configuration that is in force then: the present one if the new one is bad.
    """
    try:
        read = load()
        new = reloaded(config, read)
        listeners.admit_clients()
        configure_log(new)
    except ConfigError as error:
        telemetry.emit("config_not_reloaded", reason=error)
        return config
    for name in changed_but_not_reloadable(config, read):
        telemetry.emit("setting_needs_restart", name=name)
    engine.use_settings(engine_settings(new))
    listeners.use_config(new)
    if recorder is not None:
        recorder.keep_seconds = new.joblog.keep_seconds
        recorder.keep_count = new.joblog.keep_count
    telemetry.emit("config_reloaded")
    return new


def reload_access(config: Config, listeners: Listeners, owners: OwnersMember | None, telemetry: Telemetry) -> None:
    """Read certificates, keys and the access file again; where one is bad, the old one stays in force.

    They are independent: a certificate that cannot be read must not keep an identity that was removed.
    """
    for error in listeners.reload_tls():
        telemetry.emit("tls_not_reloaded", reason=error)
    if owners is not None:
        try:
            owners.tls.reload()
        except ConfigError as error:
            telemetry.emit("tls_not_reloaded", reason=error)
    try:
        closed = listeners.reload_access()
    except ConfigError as error:
        telemetry.emit("access_not_reloaded", reason=error)
        return
    if config.access.file:
        telemetry.emit("access_reloaded", closed=closed)
