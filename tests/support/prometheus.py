"""A real Prometheus that watches a server, and its promtool."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.support.peers import require_program
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

__all__ = ["Prometheus", "promtool", "running_prometheus"]

CONFIG = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: switchgear
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """One running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """What its HTTP interface answers."""
        with urlopen(f"{self.url}{path}?{urlencode(parameters)}", timeout=DEADLINE_SECONDS) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The present values of an expression, with their labels."""
        result = self.ask("/api/v1/query", query=expression)["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=DEADLINE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running_prometheus(target: str, rules: str = "") -> Iterator[Prometheus]:
    """A Prometheus that asks a target HOST:PORT for its metrics four times a second."""
    program = require_program("prometheus")
    with tempfile.TemporaryDirectory(prefix="prometheus-") as place:
        config = Path(place, "prometheus.yml")
        config.write_text(CONFIG.format(target=target, rules=json.dumps(rules) if rules else ""))
        port = free_port()
        with Path(place, "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={place}/data",
                    f"--web.listen-address={HOST}:{port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
            )
        try:
            prometheus = Prometheus(f"http://{HOST}:{port}")
            eventually(prometheus.is_ready, "Prometheus is ready")
            yield prometheus
        finally:
            process.terminate()
            process.wait()


def promtool(*words: str, text: str = "", cwd: Path | None = None) -> str:
    """Run promtool, and return what it says; fails if it finds a fault."""
    done = subprocess.run(
        [require_program("promtool"), *words], input=text, capture_output=True, text=True, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
