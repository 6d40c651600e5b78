"""How resources and requirements are written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.resources import amount_text, canonical_requirements, canonical_resources, split_requirements


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("memory=64G", b"memory=64G"),
        ("memory=64GB", b"memory=64G"),
        ("memory=64000000000", b"memory=64G"),
        ("memory=64GiB", b"memory=64GiB"),
        ("memory=64Gi", b"memory=64GiB"),
        ("memory=68719476736", b"memory=64GiB"),
        ("memory=1.5GiB", b"memory=1536MiB"),
        ("cores=0.5", b"cores=0.5"),
        ("cores=0.50", b"cores=0.5"),
        ("cores=0.0001", b"cores=0.001"),
        ("gpus=2, gpu", b"gpu,gpus=2"),
        ("gpus=0", b""),
        ("jobs=1k", b"jobs=1000"),
        ("", b""),
    ],
)
def test_equal_requirements_have_one_form(written: str, canonical: bytes) -> None:
    assert canonical_requirements(written) == canonical
    assert canonical_requirements(canonical.decode()) == canonical


@pytest.mark.parametrize(
    "written",
    [
        *("memory=", "memory=x", "memory=-1", "=4", "memory=64m", "memory=1e9", "memory=64Q", "a b=1", "m=1,m=2"),
        *("memory=nan", "memory=inf", f"memory={10**18 + 1}", "memory=" + "9" * 1000, f"{'x' * 65}=1", "a=b=1"),
        ",".join(f"r{number}=1" for number in range(17)),
    ],
)
def test_what_is_no_amount_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_requirements(written)
    with pytest.raises(ValueError, match=r"."):
        canonical_resources(written)


@pytest.mark.parametrize(
    "given", [{"memory": True}, {"memory": None}, {"memory": float("nan")}, {1: 2}, ["memory=1"], 7]
)
def test_what_is_no_resource_in_a_program_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_resources(given)


def test_a_tag_is_no_resource() -> None:
    with pytest.raises(ValueError, match="a resource is a name with an amount, such as memory=64G, not 'gpu'"):
        canonical_resources("gpu")


def test_tags_of_an_earlier_version_stay_tags() -> None:
    assert split_requirements(b"zone=eu") == (frozenset({b"zone=eu"}), ())


@pytest.mark.parametrize("amount", [1, 999, 1000, 1500, 10**9, 10**9 + 1, 2**40 * 1000, 10**21])
def test_a_shown_amount_is_read_back(amount: int) -> None:
    assert split_requirements(b"x=" + amount_text(amount).encode())[1] == ((b"x", amount),)
