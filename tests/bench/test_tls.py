"""`bench.tls`: one short round against a real nginx."""

from __future__ import annotations

from bench.tls import PEERS, STREAM_MODULE, WAYS, measure_all
from tests.support.peers import require_file, require_program


def test_a_short_round() -> None:
    require_program("nginx")
    require_program("openssl")
    require_file(STREAM_MODULE, "libnginx-mod-stream")
    found = measure_all(jobs=64, connections=2)
    assert set(found) == {(what, peer, way) for what in ("x1", "x32", "connect") for peer in PEERS for way in WAYS}
    for (_, _, way), measured in found.items():
        assert measured.server_us > 0
        assert way == "nginx" or measured.nginx_us < 1_000, "nginx has nothing to do with it"
    assert found["connect", "gearman", "nginx"].nginx_us > 0
