"""Configuration: one frozen object, checked once.

`load_config` reads the command line, the environment and a TOML file; below it, values are passed.
"""

from switchgear.config.display import as_json, as_toml, options_table, settings_table
from switchgear.config.listen import ListenUrl
from switchgear.config.loading import LoadedConfig, default_state_dir, load_config, read_config
from switchgear.config.settings import (
    SECTIONS,
    SETTINGS,
    Config,
    EngineConfig,
    GearmanConfig,
    HttpConfig,
    JobLogConfig,
    LimitsConfig,
    LogConfig,
    Setting,
    StorageConfig,
    ZeromqConfig,
    changed_but_not_reloadable,
    reloaded,
)

__all__ = [
    "SECTIONS",
    "SETTINGS",
    "Config",
    "EngineConfig",
    "GearmanConfig",
    "HttpConfig",
    "JobLogConfig",
    "LimitsConfig",
    "ListenUrl",
    "LoadedConfig",
    "LogConfig",
    "Setting",
    "StorageConfig",
    "ZeromqConfig",
    "as_json",
    "as_toml",
    "changed_but_not_reloadable",
    "default_state_dir",
    "load_config",
    "options_table",
    "read_config",
    "reloaded",
    "settings_table",
]
