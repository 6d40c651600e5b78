"""Shows the settings as a TOML file with comments, as JSON, and as the table in the manual."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from switchgear.config.loading import LoadedConfig
from switchgear.config.setting_types import ListenUrls, RedactionRules
from switchgear.config.settings import SECTIONS, SETTINGS, Setting
from switchgear.protocol_registry import built_in_protocols
from switchgear.text import without_secrets

__all__ = ["as_json", "as_toml", "options_table", "settings_table"]

_WIDTH = 100


def as_toml(loaded: LoadedConfig) -> str:
    """Every setting with its value, meaning and source; the text is a configuration file."""
    blocks = [_toml_block(setting, loaded) for setting in SETTINGS.values() if "." not in setting.name]
    for section, owner in SECTIONS.items():
        blocks.append(f"# {owner.__doc__}\n[{section}]")
        prefix = f"{section}."
        blocks.extend(_toml_block(setting, loaded) for setting in SETTINGS.values() if setting.name.startswith(prefix))
    return "\n\n".join(blocks) + "\n"


def as_json(loaded: LoadedConfig) -> list[dict[str, object]]:
    """Every setting as plain data, ready to be written as JSON."""
    return [
        {
            "name": setting.name,
            "value": _plain(setting, loaded),
            "source": loaded.sources[setting.name],
            "default": setting.default_text,
            "environment": setting.environment,
            "flag": setting.flag or None,
            "reloadable": setting.reloadable,
            "help": setting.help,
            "reason": setting.reason,
        }
        for setting in SETTINGS.values()
    ]


def settings_table() -> str:
    """Every setting as a row of a Markdown table."""
    rows = ["| setting | default | what it does, and why that default |", "|---|---|---|"]
    for setting in SETTINGS.values():
        default = setting.default_note or f"`{setting.default_text}`"
        reload = " ↻" if setting.reloadable else ""
        rows.append(f"| `{setting.name}`{reload} | {default} | {setting.help} *{setting.reason}* |")
    return "\n".join(rows)


def options_table() -> str:
    """Every listener's scheme, and what its URL may say, as a Markdown table."""
    rows = ["| scheme | usual port | option | default | what it is |", "|---|---|---|---|---|"]
    for protocol in built_in_protocols().values():
        rows.append(f"| `{protocol.scheme}` | {protocol.default_port} | | | |")
        rows += [
            f"| | | `{key}` | {f'`{option.default}`' if option.default else ''} | {option.help} |"
            for key, option in protocol.options.items()
        ]
    return "\n".join(rows)


def _toml_block(setting: Setting, loaded: LoadedConfig) -> str:
    value = setting.value_in(loaded.config)
    source = loaded.sources[setting.name]
    notes = [setting.help, f"Why: {setting.reason}", f"From: {source}."]
    if source != "default":
        notes[-1] += f" Default: {setting.default_text}."
    elif setting.name == "store":
        notes[-1] += f" In effect: {loaded.config.store_url}"
    elif setting.name == "joblog.url":
        notes[-1] += f" In effect: {without_secrets(loaded.config.joblog_url) or 'off'}"
    if setting.reloadable:
        notes[-1] += " Taken up on SIGHUP."
    key = setting.name.rpartition(".")[2]
    shown = value
    if isinstance(value, str):
        shown = without_secrets(value)
        if shown != value:
            notes.append("The password is not shown; add it if you use this text as a file.")
    return "\n".join([*_comments(notes), f"{key} = {setting.kind.toml(shown)}"])


def _comments(notes: Iterable[str]) -> Iterable[str]:
    for note in notes:
        # A path in a note may hold anything; a comment ends with its line.
        safe = "".join(letter if letter.isprintable() else "?" for letter in note)
        yield from textwrap.wrap(safe, _WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _plain(setting: Setting, loaded: LoadedConfig) -> object:
    value = setting.value_in(loaded.config)
    if isinstance(setting.kind, ListenUrls):
        return [str(url) for url in value]
    if isinstance(setting.kind, RedactionRules):
        return list(value)
    return value if isinstance(value, bool | int | float) else without_secrets(str(value))
