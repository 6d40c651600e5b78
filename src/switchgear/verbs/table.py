"""The table of verbs: one row for each thing that an operator can ask a server for.

The dispatcher of the server (`net.operations`), CONTROL packets, the options of the command line, `docs/verbs.md` and
the checks of the Python library are made from this table, or tested against it.  Its rows are in the modules that it
imports, by subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchgear.verbs.function_verbs import FUNCTION_VERBS
from switchgear.verbs.job_verbs import JOB_VERBS
from switchgear.verbs.operator_verb import OperatorVerb
from switchgear.verbs.schedule_verbs import SCHEDULE_VERBS
from switchgear.verbs.server_verbs import SERVER_VERBS, STOPPING_VERBS

__all__ = ["VERBS"]

_ROWS: Final = (*SERVER_VERBS, *FUNCTION_VERBS, *JOB_VERBS, *SCHEDULE_VERBS, *STOPPING_VERBS)

VERBS: Final[Mapping[str, OperatorVerb]] = {row.name: row for row in _ROWS}
