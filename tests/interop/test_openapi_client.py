"""A client in TypeScript whose types are generated from /openapi.json: it compiles strictly, and works."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.http_client import HttpClient
from tests.support.peers import NODE_FOLDER, require_node_script
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

# Fields with a default may be left out by clients.
GENERATE = ("openapi.json", "--output", "schema.d.ts", "--default-non-nullable=false")
COMPILE = ("--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "client.ts")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10 * DEADLINE_SECONDS)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_generated_client_compiles_and_works(tmp_path: Path) -> None:
    generate = require_node_script("node_modules/openapi-typescript/bin/cli.js")
    compile_ = require_node_script("node_modules/typescript/bin/tsc")
    shutil.copy(NODE_FOLDER / "openapi" / "client.ts", tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_FOLDER / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url), closing(HttpClient(url)) as client:
        (tmp_path / "openapi.json").write_bytes(client.call("GET", "/openapi.json").body)
        run(tmp_path, *generate, *GENERATE)
        run(tmp_path, *compile_, *COMPILE)
        assert run(tmp_path, generate[0], "client.js", url) == "all is well\n"
