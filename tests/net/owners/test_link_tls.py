"""The files of the encryption between nodes: what is wrong with them is said at the start, and at a reload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from switchgear.config import Config
from switchgear.config.settings import ClusterConfig
from switchgear.errors import ConfigError
from switchgear.net.owners.link_tls import LinkTls
from tests.support.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def config_of(certificates: Certificates) -> ClusterConfig:
    return ClusterConfig(
        link_tls_cert=str(certificates.certificate("server")), link_tls_key=str(certificates.key("server"))
    )


def test_without_a_certificate_a_node_accepts_no_encrypted_links_and_opens_them() -> None:
    tls = LinkTls(ClusterConfig())
    assert tls.accepted() is None
    assert tls.scheme == ""
    assert not tls.is_required
    assert not tls.opened().is_ready


def test_certificate_key_and_authorities_are_checked_at_the_start(certificates: Certificates, tmp_path: Path) -> None:
    config = config_of(certificates)
    assert LinkTls(config).scheme == "tls://"
    assert LinkTls(replace(config, link_tls_ca=str(certificates.authority))).is_required
    nothing = str(tmp_path / "nothing.pem")
    open_to_all = tmp_path / "open.key"
    open_to_all.write_bytes(certificates.key("server").read_bytes())
    open_to_all.chmod(0o644)
    for wrong, reason in (
        (replace(config, link_tls_cert=nothing), "No such file"),
        (replace(config, link_tls_key=nothing), "No such file"),
        (replace(config, link_tls_key=str(certificates.key("root"))), "mismatch"),
        (replace(config, link_tls_key=str(open_to_all)), "every user of this machine can read"),
        (replace(config, link_tls_ca=nothing), "No such file"),
    ):
        with pytest.raises(ConfigError, match=f"cluster.link_tls.*{reason}"):
            LinkTls(wrong)


def test_a_key_without_a_certificate_is_refused() -> None:
    for wrong in (ClusterConfig(link_tls_key="x.pem"), ClusterConfig(link_tls_ca="x.pem")):
        with pytest.raises(ConfigError, match="need a certificate"):
            Config(cluster=wrong)


def test_a_reload_takes_the_new_files_or_keeps_the_old_ones(certificates: Certificates, tmp_path: Path) -> None:
    both = tmp_path / "node.pem"
    both.touch(0o600)
    write = both.write_bytes
    write(certificates.certificate("server").read_bytes() + certificates.key("server").read_bytes())
    tls = LinkTls(ClusterConfig(link_tls_cert=str(both)))
    first = tls.accepted()
    write(b"nonsense")
    with pytest.raises(ConfigError):
        tls.reload()
    kept = tls.accepted()
    write(certificates.certificate("root").read_bytes() + certificates.key("root").read_bytes())
    tls.reload()
    last = tls.accepted()
    assert first is not None
    assert kept is not None
    assert last is not None
    assert first[1] == kept[1] != last[1]
