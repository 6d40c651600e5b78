"""From `--store URL` to a store."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from switchgear.errors import ConfigError, StorageError
from switchgear.storage.memory import MemoryStore
from switchgear.storage.open import open_store
from switchgear.storage.sqlite import SqliteStore
from tests.storage.support import close, commit, new_job


def test_memory() -> None:
    store = open_store("memory:")
    assert isinstance(store, MemoryStore)
    assert store.url == "memory:"
    assert not store.durable
    close(store)


def test_sqlite(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path}/jobs.db", sync="normal", payload_memory_bytes=0)
    try:
        assert isinstance(store, SqliteStore)
        assert store.url == f"sqlite:{tmp_path}/jobs.db"
        assert store.durable
        commit(store, [new_job(1)])
    finally:
        close(store)
    assert (tmp_path / "jobs.db").exists()


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    store = open_store("sqlite:state/jobs.db")
    close(store)
    assert store.url == "sqlite:state/jobs.db"
    assert (tmp_path / "state" / "jobs.db").exists()


def test_a_path_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    close(open_store("sqlite:~/jobs.db"))
    assert (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE"),
        ("memory", "memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE"),
        ("jobs.db", "memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE"),
        ("mysql://ada:secret@localhost/jobs", "mysql://ada:***@localhost/jobs': expected memory:, sqlite:PATH or"),
        ("postgresql://localhost/jobs?sslmodus=on", "invalid URI query parameter"),
        ("memory:jobs.db", "nothing after the colon"),
        ("sqlite:", "path of a file"),
        ("sqlite://jobs.db", "plain path"),
        ("sqlite:///jobs.db", "plain path"),
        ("sqlite::memory:", "write memory:"),
        ("sqlite:jo\0bs.db", "null"),
        ("sqlite:~nobody-of-that-name/jobs.db", "home"),
    ],
)
def test_urls_that_make_no_sense(url: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert hint in str(caught.value)
    assert repr(url.replace(":secret@", ":***@")) in str(caught.value)


def test_an_unknown_sync() -> None:
    with pytest.raises(ConfigError, match="full or normal"):
        open_store("memory:", sync="sometimes")  # type: ignore[arg-type]


def test_a_path_that_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path)):
        open_store(f"sqlite:{tmp_path}")


def test_a_directory_that_is_missing_is_made_only_if_that_is_wanted(tmp_path: Path) -> None:
    """A mistyped path must not start an empty queue."""
    with pytest.raises(StorageError, match=r"there is no directory .*/typo/state; .* mkdir -p -m 700 "):
        open_store(f"sqlite:{tmp_path}/typo/state/jobs.db")
    assert list(tmp_path.iterdir()) == []
    close(open_store(f"sqlite:{tmp_path}/typo/state/jobs.db", make_directory=True))
    assert stat.S_IMODE((tmp_path / "typo" / "state").stat().st_mode) == 0o700
