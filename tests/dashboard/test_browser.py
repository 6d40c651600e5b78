"""A real browser walks through the dashboard: Debian's chromium, driven by playwright, judged by axe.

Each scenario is a program of `tests/dashboard/browser`, which prints what it found as JSON.  With WRITE_SCREENSHOTS in
the environment, the pictures of the documents are made (`make screenshots`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_client import HttpClient
from tests.support.peers import require_node_script, require_program
from tests.support.postgres import Cluster
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parent / "browser"
ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES = Path(__file__).parent / "pictures"
SCENARIO_SECONDS = 500
# Longer than nodes wait for one that is silent, so that a page has the time to say so.
DEATH_LEASE_SECONDS = 8.0


def in_browser(scenario: str, *arguments: str) -> Any:
    """Run a scenario; what it has found."""
    chromium = require_program("chromium")
    command = [*require_node_script(f"{scenario}.mjs", FOLDER), *arguments]
    environment = {**os.environ, "CHROMIUM": chromium}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_SECONDS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def pictures() -> Iterator[str]:
    """A folder for pictures, if they are wanted; those that documents show become a part of the documents."""
    if not os.environ.get("WRITE_SCREENSHOTS"):
        yield ""
        return
    shown = set(re.findall(r"images/([\w-]+\.png)", (ROOT / "docs" / "dashboard.md").read_text()))
    with tempfile.TemporaryDirectory() as folder:
        yield folder
        for picture in Path(folder).iterdir():
            if picture.name in shown:
                shutil.copy(picture, IMAGES / picture.name)


@contextmanager
def serving(*more: str, options: str = "") -> Iterator[tuple[Server, str, str]]:
    """A server with HTTP and WMP."""
    http, wmp = f"http://{HOST}:{free_port()}", f"wmp://{HOST}:{free_port()}"
    with running_switchgear("--listen", http, "--listen", wmp, *more, options=options) as server:
        yield server, f"{http}/", wmp


@contextmanager
def playing(server: Server, url: str, wmp: str) -> Iterator[None]:
    """The scene, in a process of its own."""
    gearman = f"gearman://{HOST}:{server.port}"
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "tests.dashboard.scene", url.rstrip("/"), gearman, wmp]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT)

        def is_ready() -> bool:
            output.seek(0)
            told = output.read()
            assert process.poll() is None, told
            return "ready" in told

        try:
            eventually(is_ready, "the scene is set")
            yield
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_program("chromium")
    place = tmp_path_factory.mktemp("scene")
    stores = ["--store", f"sqlite:{place}/jobs.db", "--joblog", f"sqlite:{place}/log.db"]
    with serving(*stores) as (server, url, wmp), playing(server, url, wmp):
        yield url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["1280", "390"])
def test_every_view(scene: str, scheme: str, width: str) -> None:
    with pictures() as folder:
        found = in_browser("walk", scene, scheme, width, folder)
    assert found["problems"] == []
    assert len(found["places"]) >= 9


def test_views_look_as_before() -> None:
    """A deliberate change: `make screenshots`, and look at the pictures before they are committed."""
    mode = "write" if os.environ.get("WRITE_SCREENSHOTS") else "compare"
    with serving() as (_, url, _):
        found = in_browser("screenshots", url, mode, str(PICTURES))
    assert found["problems"] == []
    assert found["differences"] == {}, f"make screenshots, if that is meant; see {PICTURES / 'seen'}"
    if mode == "compare":
        assert found["withoutPanel"] > found["tolerance"], "a missing panel would not be noticed"


def test_lighthouse(scene: str) -> None:
    found = in_browser("lighthouse", scene, str(free_port()), "overview", "jobs", "stream")
    for place, scores in found.items():
        assert scores["error"] == "", place
        assert (scores["accessibility"], scores["wrong"]) == (1, []), place
        assert scores["performance"] >= 0.95, place


def test_everything_by_keyboard(scene: str) -> None:
    assert in_browser("keys", scene)["problems"] == []


def test_the_task_stream(scene: str) -> None:
    found = in_browser("stream", scene)
    assert found["problems"] == []
    assert found["many"]["perSecond"] > 5  # even here, without a graphics card and beside other tests


def test_actions(scene: str) -> None:
    assert in_browser("actions", scene)["problems"] == []


def test_seven_tabs_share_one_stream(scene: str) -> None:
    assert in_browser("tabs", scene)["problems"] == []


def test_pages_of_other_sites_are_refused(scene: str) -> None:
    found = in_browser("other_site", scene)
    assert found == {"sent": ["opaque", "opaque"], "read": "TypeError", "preflight": "TypeError", "framed": False}


def test_a_name_that_was_made_to_point_here_is_refused(scene: str) -> None:
    """DNS rebinding: the page of another name would be of this server, if the server answered to the name."""
    client = HttpClient(scene.rstrip("/"))
    for path in ("/", "/v1/overview"):
        assert client.call("GET", path, headers={"Host": "evil.example.org"}).status == 421
    client.close()


def test_the_first_run() -> None:
    with serving() as (_, url, _), pictures() as folder:
        assert in_browser("first_run", url, folder)["problems"] == []


def test_ten_thousand_functions() -> None:
    with serving() as (_, url, _):
        assert in_browser("many", url)["problems"] == []


NGINX = """
daemon off; worker_processes 1; pid {place}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {place}/a; proxy_temp_path {place}/b; fastcgi_temp_path {place}/c;
  uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
  server {{
    listen {host}:{port};
    location = /tools/gear {{ return 301 /tools/gear/; }}
    location /tools/gear/ {{
      proxy_pass {url}; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}
}}
"""


def test_under_a_path_of_a_proxy(scene: str, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "nginx.conf").write_text(NGINX.format(place=tmp_path, host=HOST, port=port, url=scene))
    with subprocess.Popen(
        [require_program("nginx"), "-c", str(tmp_path / "nginx.conf")], stderr=subprocess.PIPE
    ) as nginx:
        try:
            client = HttpClient(f"http://{HOST}:{port}")
            eventually(lambda: answers(client), "nginx answers")
            client.close()
            found = in_browser("walk", f"http://{HOST}:{port}/tools/gear/", "light", "1280")
            assert found["problems"] == []
        finally:
            nginx.terminate()


def answers(client: HttpClient) -> bool:
    try:
        return client.call("GET", "/tools/gear/livez").status == 200
    except OSError:
        client.close()
        return False


def test_a_server_that_demands_identities(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    tokens = {}
    rights = {"viewer": ["read"], "ops": ["operate"], "some": ["read", "--function", "mail*"], "submitter": ["submit"]}
    for name, given in rights.items():
        command = [sys.executable, "-m", "switchgear", "access", "add", name, "--file", str(file), "--role", *given]
        tokens[name] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
    more = ["--access-file", str(file), "--joblog", f"sqlite:{tmp_path / 'log.db'}"]
    with serving(*more, options="?access=open") as (_, url, _):  # Gearman is open for this test itself
        request = urllib.request.Request(
            f"{url}v1/functions/mail",
            b'{"paused": true}',
            {"Content-Type": "application/json", "Authorization": f"Bearer {tokens['ops']}"},
            method="PATCH",
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
        asked = urllib.request.Request(
            f"{url}v1/session/codes", b"", {"Authorization": f"Bearer {tokens['ops']}"}, method="POST"
        )
        with urllib.request.urlopen(asked) as answer:
            code = json.loads(answer.read())["code"]
        assert (
            in_browser("login", url, tokens["viewer"], tokens["ops"], code, tokens["some"], tokens["submitter"])[
                "problems"
            ]
            == []
        )


def test_what_goes_wrong_around_an_open_page(tmp_path: Path) -> None:
    """Hostile names, back and forward, zoom, print, a slow network, a server that restarts, a session that ends."""
    file = tmp_path / "access.toml"
    add = [sys.executable, "-m", "switchgear", "access", "add", "ops", "--role", "operate", "--file", str(file)]
    token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.split()[-1]
    url = f"http://{HOST}:{free_port()}"
    command = [sys.executable, "-m", "switchgear", "serve", "--listen", url, "--store", "memory:"]
    with serving("--access-file", str(file), options="?access=open") as (_, guarded, _):
        assert in_browser("trouble", f"{url}/", json.dumps(command), guarded, token)["problems"] == []


@pytest.mark.xdist_group("postgresql")
def test_the_nodes_of_a_cluster(postgres: Cluster) -> None:
    settings = ("cluster.enabled=true", "cluster.name=ada", "cluster.allow_async=true")
    more = [word for setting in settings for word in ("--set", setting)]
    with serving("--store", postgres.new_url(), *more) as (_, url, _):
        assert in_browser("nodes", url, "ada")["problems"] == []


@pytest.mark.xdist_group("postgresql")
def test_beside_a_node_that_dies(postgres: Cluster, tmp_path: Path) -> None:
    """The page of one of several owners: a job of another one, what is missing while that one is silent, and after."""
    require_program("chromium")
    url = postgres.new_url()
    nodes = [OwnerNode(name, url, tmp_path, lease_seconds=DEATH_LEASE_SECONDS) for name in NAMES]
    entry, _, lost = nodes
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.end)
            node.start()
            node.wait_until_it_answers()
        settled(nodes)
        assert lost.process is not None
        owner = {"url": address(lost), "pid": lost.process.pid, "name": lost.name, "function": function_of(lost)}
        told = {"url": address(entry), "owner": owner, "names": NAMES}
        assert in_browser("owners", json.dumps(told))["problems"] == []


def address(node: OwnerNode) -> str:
    return f"http://{HOST}:{node.http_port}/"
