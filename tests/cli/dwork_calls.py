"""Calling `switchgear dwork` as a user does."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from switchgear.cli.main import main


def dwork(*args: str, url: str = "dwork://127.0.0.1:1", stdin: bytes = b"") -> Result:
    """Run a command in this process."""
    return CliRunner(env={"SWITCHGEAR_DWORK_SERVER": url}).invoke(main, ["dwork", *args], input=stdin)


def dwork_json(*args: str, url: str) -> Any:
    """What a command that succeeds tells programs."""
    result = dwork(*args, "--json", url=url)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
