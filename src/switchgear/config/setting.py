"""`Setting`: the description of one setting, and the base class of sections that check their values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from switchgear.config.setting_types import SettingType
from switchgear.errors import ConfigError
from switchgear.text import without_secrets

__all__ = ["Checked", "Setting", "setting"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The name, default, type, help and reason of one setting."""

    name: str  # as in a TOML file: section.key, or key alone
    kind: SettingType
    help: str
    reason: str  # why the default is what it is
    default: object
    default_note: str  # where the default is decided when the server starts
    reloadable: bool
    flag: str  # of `switchgear serve`, if it has one of its own

    @property
    def environment(self) -> str:
        """The environment variable of the setting."""
        return "SWITCHGEAR_" + self.name.replace(".", "_").upper()

    @property
    def default_text(self) -> str:
        """The default as users write it."""
        return self.default_note or self.kind.toml(self.default)

    def value_in(self, config: object) -> Any:
        """This setting's value in a configuration."""
        section, _, key = self.name.rpartition(".")
        return getattr(getattr(config, section) if section else config, key)


def setting(
    default: object,
    kind: SettingType,
    help: str,
    reason: str,
    *,
    reloadable: bool = False,
    flag: str = "",
    default_note: str = "",
) -> Any:
    return field(
        default=default,
        metadata={
            "kind": kind,
            "help": help,
            "reason": reason,
            "default_note": default_note,
            "reloadable": reloadable,
            "flag": flag,
        },
    )


@dataclass(frozen=True)
class Checked:
    """Base class of sections: reads every field through its type when the object is made."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            kind = entry.metadata.get("kind")
            if kind is None:
                continue
            value = getattr(self, entry.name)
            try:
                object.__setattr__(self, entry.name, kind.read(value))
            except ValueError as error:
                text = str(error) or f"expected {kind.expected}, got {without_secrets(repr(value))}"
                raise ConfigError(f"{entry.name}: {text}") from None
