"""examples/flask_previews and examples/fastapi_reports, as their READMEs have them run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.examples.sites import PATIENCE_SECONDS, ask, running, wait_for_site, worker_command
from tests.support.servers import free_port, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    http = f"http://127.0.0.1:{free_port()}"
    with running_switchgear("--listen", http) as server:
        yield {"SWITCHGEAR_URL": f"gearman://127.0.0.1:{server.port}", "SWITCHGEAR_HTTP": http}


@pytest.fixture(scope="module")
def flask_site(environment: dict[str, str]) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "flask", "--app", "site_app", "run", "--port", str(port)]
    with (
        running(*command, example="flask_previews", environment=environment),
        running(*worker_command("site_app:jobs"), example="flask_previews", environment=environment),
    ):
        wait_for_site(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def fastapi_site(environment: dict[str, str]) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "site_app:app", "--port", str(port), "--log-level", "warning"]
    with (
        running(*command, example="fastapi_reports", environment=environment),
        running(*worker_command("site_app:jobs"), example="fastapi_reports", environment=environment),
    ):
        wait_for_site(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}"


def test_flask_shows_a_preview_that_a_worker_has_made(flask_site: str) -> None:
    job = ask("POST", f"{flask_site}/previews", b"some long text")["job"]

    def preview() -> Any:
        return ask("GET", f"{flask_site}/previews/{job}")["preview"]

    assert eventually(preview, "the preview is made", PATIENCE_SECONDS) == "some lo…"


def test_flask_does_not_know_a_job_that_was_never_made(flask_site: str) -> None:
    with pytest.raises(HTTPError) as raised:
        ask("GET", f"{flask_site}/previews/H:nowhere:999999")
    with raised.value as answer:
        assert answer.code == 404


def events(url: str) -> list[tuple[str, Any]]:
    """Server-sent events until the site has no more to say."""
    with urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        blocks = answer.read().decode().split("\n\n")
    pairs = [block.splitlines() for block in blocks if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def test_fastapi_passes_on_the_result(fastapi_site: str) -> None:
    job = ask("POST", f"{fastapi_site}/reports?rows=3")["job"]
    assert events(f"{fastapi_site}/reports/{job}/events")[-1] == ("result", {"rows": 3, "sum": 3})


def test_fastapi_cancels_a_job_only_once(fastapi_site: str) -> None:
    job = ask("POST", f"{fastapi_site}/reports?rows=1")["job"]
    events(f"{fastapi_site}/reports/{job}/events")
    assert ask("DELETE", f"{fastapi_site}/reports/{job}") == {"cancelled": False}


@pytest.fixture(scope="module")
def django_site(environment: dict[str, str]) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "asgi:application", "--port", str(port), "--log-level", "warning"]
    with running(*command, example="django_shop", environment=environment):
        wait_for_site(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("site", ["fastapi_site", "django_site"])
def test_the_dashboard_is_a_part_of_the_site(site: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(site)
    with urlopen(f"{url}/dashboard/", timeout=PATIENCE_SECONDS) as page:
        assert b"<title>Switchgear</title>" in page.read()
    assert ask("GET", f"{url}/dashboard/v1/overview")["version"]
    with pytest.raises(HTTPError) as raised:
        ask("POST", f"{url}/dashboard/v1/jobs", b"{}")
    with raised.value as answer:
        assert answer.code == 403  # visitors only look
