"""Files in TOML: what is in them, or one error, and never a wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchgear.toml_file import NotToml, read_toml_file


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "file.toml"
    path.write_bytes(data)
    return path


def test_a_document(tmp_path: Path) -> None:
    assert read_toml_file(written(tmp_path, b"a = 1\n[b]\nc = '\xc3\xa9'\n")) == {"a": 1, "b": {"c": "é"}}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff", "not valid TOML: not UTF-8"),
        (b"[", "not valid TOML: Invalid"),
        (b"a = " + b"[" * 3000, "not valid TOML: nested too deeply"),
        (b"a = " + b"{a=" * 3000, "not valid TOML: nested too deeply"),
        (b"a = " + b"1" * 5000, "not valid TOML: a number has too many digits"),
        (b"a" + b".a" * 3000 + b" = 1", "not valid TOML: a key has more than 100 parts"),
        (b"[" + b"'a' . " * 3000 + b"a]", "not valid TOML: a key has more than 100 parts"),
        (b"a = 1\n\t" + b"a." * 3000 + b"b = 1", "not valid TOML: a key has more than 100 parts"),
    ],
)
def test_a_mistake_is_one_kind_of_error(tmp_path: Path, data: bytes, complaint: str) -> None:
    with pytest.raises(NotToml) as raised:
        read_toml_file(written(tmp_path, data))
    assert str(raised.value).startswith(complaint)


@pytest.mark.parametrize("line", [b"a = ['" + b"x." * 200 + b"']", b"# " + b"." * 200, b"'a=" + b"." * 200 + b"' = 1"])
def test_dots_elsewhere_are_no_parts_of_a_key(tmp_path: Path, line: bytes) -> None:
    read_toml_file(written(tmp_path, line))


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    path = written(tmp_path, b"a = 1 # " + b"x" * 100)
    assert read_toml_file(path, most_bytes=108) == {"a": 1}
    with pytest.raises(NotToml, match="it has more than 107 bytes"):
        read_toml_file(path, most_bytes=107)


def test_a_file_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotToml, match="not a regular file"):
        read_toml_file(pipe)
    with pytest.raises(NotToml, match="not a regular file"):
        read_toml_file(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        read_toml_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_toml_file(tmp_path / "none")


def test_a_pipe_with_a_writer_is_read_where_it_is_allowed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotToml, match="nothing was written to this pipe"):
        read_toml_file(pipe, is_pipe_allowed=True)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # or there could be no writer
    try:
        with pipe.open("wb") as writer:
            writer.write(b"a = 1\n")
        assert read_toml_file(pipe, is_pipe_allowed=True) == {"a": 1}
    finally:
        os.close(reader)


def test_a_link_is_followed(tmp_path: Path) -> None:
    path = written(tmp_path, b"a = 1")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_toml_file(link) == {"a": 1}


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """Half of an access file may be valid, and would remove the identities in the other half."""
    path = written(tmp_path, b"a = 1\n")

    def change(_: os.stat_result) -> None:
        with path.open("ab") as file:
            file.write(b"b = 2\n")

    with pytest.raises(NotToml, match="it was changed while it was read"):
        read_toml_file(path, check=change)
    assert read_toml_file(path) == {"a": 1, "b": 2}
