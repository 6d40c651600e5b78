"""The JSON options of SUBMIT_JOB_OPTIONS, made from the table of job options.

This is a separate module that is not compiled: msgspec reads the types of the fields, and compiled code has none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from switchgear.job_options import json_struct
from switchgear.protocols.option_reading import OPTION_OF_FIELD

__all__ = ["JobOptions", "given_options"]

JobOptions: Final = json_struct("JobOptions", OPTION_OF_FIELD)


def given_options(options: msgspec.Struct) -> dict[str, Any]:
    """The options that differ from their defaults, by the names that the peer used."""
    given: dict[str, Any] = msgspec.to_builtins(options)
    return given
