"""Resources: amounts of what a worker has and a job needs, such as `memory=64G`; and all that a job requires.

People write amounts as numbers, with a unit if they like: `cores=0.5`, `memory=64G`, `memory=512MiB`.  K, M, G, T and P
are powers of 1000, with or without a B; with `i` (GiB) they are powers of 1024.  In the server an amount is a whole
number of thousandths, so that comparing and subtracting are exact.

What a job requires is a list of tags and of least amounts: `gpu,memory=64G`.  In one canonical form, sorted and with
commas, it is the job's `requires`.  An amount of 0 requires nothing and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

from switchgear.tags import MOST_TAG_BYTES, MOST_TAGS, checked_tag, split_at_commas

__all__ = [
    "MOST_AMOUNT",
    "THOUSANDTHS",
    "amount_text",
    "as_number",
    "canonical_requirements",
    "canonical_resources",
    "resource_amounts",
    "shown_amounts",
    "shown_number",
    "shown_requirements",
    "split_requirements",
]

THOUSANDTHS: Final = 1000
MOST_AMOUNT: Final = 10**18  # of anything; an amount beyond it is a slip of the pen
_DECIMAL_UNITS: Final = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3))
_BINARY_UNITS: Final = (("PiB", 2**50), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_FACTORS: Final[Mapping[str, int]] = {
    "": 1,
    "B": 1,
    "k": 1000,
    "kB": 1000,
    **{name: factor for unit, factor in _DECIMAL_UNITS for name in (unit, f"{unit}B")},
    **{name: factor for unit, factor in _BINARY_UNITS for name in (unit, unit[:-1])},
}
# Smaller amounts are as easily read without a unit.
_UNITS_FROM: Final = 10**6

_AMOUNT: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s?([A-Za-z]{0,3})")

Amounts = tuple[tuple[bytes, int], ...]  # names and thousandths, sorted


# --- amounts ---


def _thousandths(text: str) -> int:
    """The amount that a text says; raises ValueError."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2] not in _FACTORS:
        raise ValueError(f"{text!r} is no amount: write a number, or one with K, M, G, T, P or KiB, MiB, GiB, TiB, PiB")
    amount = Decimal(match[1]) * _FACTORS[match[2]]
    if amount > MOST_AMOUNT:
        raise ValueError(f"{text!r} is more than there is of anything: an amount is at most {MOST_AMOUNT:,}")
    return int((amount * THOUSANDTHS).to_integral_value(ROUND_CEILING))


def amount_text(thousandths: int) -> str:
    """An amount as people write it, exactly.

    >>> [amount_text(amount) for amount in (500, 4000, 64 * 10**12, 1000 * 2**30, 0, -1500)]
    ['0.5', '4', '64G', '1GiB', '0', '-1.5']
    """
    if thousandths < 0:
        return f"-{amount_text(-thousandths)}"
    whole, rest = divmod(thousandths, THOUSANDTHS)
    if rest:
        return f"{whole}.{rest:03}".rstrip("0")
    if whole >= _UNITS_FROM:
        for unit, factor in (*_DECIMAL_UNITS, *_BINARY_UNITS):
            if whole % factor == 0:
                return f"{whole // factor}{unit}"
    return str(whole)


# --- what a worker has ---


def canonical_resources(given: str | Mapping[str, str | float]) -> bytes:
    """The resources sorted, with commas between them; raises ValueError.

    >>> canonical_resources("memory=64G, cores=8"), canonical_resources({"gpus": 2, "memory": "1GiB"})
    (b'cores=8,memory=64G', b'gpus=2,memory=1GiB')
    """
    if isinstance(given, str):
        parts = split_at_commas(given)
    elif isinstance(given, Mapping):
        parts = [f"{checked_tag(name).decode()}={_written(amount)}" for name, amount in given.items()]
    else:
        raise ValueError(f"resources are names with amounts, such as memory=64G, not {given!r}")
    amounts: dict[bytes, int] = {}
    for part in parts:
        _read_amount(part, amounts)
    _refuse_many(len(amounts))
    return b",".join(sorted(_canonical(name, amount) for name, amount in amounts.items()))


def resource_amounts(given: str | Mapping[str, str | float]) -> dict[bytes, int]:
    """The resources as a worker has them: thousandths by name; raises ValueError.

    >>> resource_amounts("cores=0.5")
    {b'cores': 500}
    """
    return dict(split_requirements(canonical_resources(given))[1])


# --- what a job requires ---


def canonical_requirements(given: str | Iterable[str]) -> bytes:
    """Tags and amounts sorted, each once, with commas between them; raises ValueError.

    >>> canonical_requirements("memory=64G,gpu, cores=0"), canonical_requirements(["large", "gpu"])
    (b'gpu,memory=64G', b'gpu,large')
    """
    parts = split_at_commas(given) if isinstance(given, str) else given
    amounts: dict[bytes, int] = {}
    tags: set[bytes] = set()
    for part in parts:
        if isinstance(part, str) and "=" in part:
            _read_amount(part, amounts)
        else:
            tags.add(checked_tag(part))
    required = sorted([*tags, *(_canonical(name, amount) for name, amount in amounts.items() if amount)])
    _refuse_many(len(required))
    return b",".join(required)


def split_requirements(requires: bytes) -> tuple[frozenset[bytes], Amounts]:
    """The tags and the amounts of a canonical text.

    >>> split_requirements(b"gpu,memory=1K")
    (frozenset({b'gpu'}), ((b'memory', 1000000),))
    """
    tags: list[bytes] = []
    amounts: list[tuple[bytes, int]] = []
    for part in requires.split(b",") if requires else ():
        name, equals, amount = part.rpartition(b"=")
        try:
            if equals:
                amounts.append((name, _thousandths(amount.decode())))
                continue
        except ValueError:
            pass  # a store may have tags of an earlier version, which had no amounts
        tags.append(part)
    return frozenset(tags), tuple(sorted(amounts))


# --- showing ---


def shown_amounts(amounts: Iterable[tuple[bytes, int]]) -> dict[str, float]:
    """The resources for JSON, as numbers.

    >>> shown_amounts({b"memory": 64000, b"cores": 500}.items())
    {'cores': 0.5, 'memory': 64}
    """
    return {name.decode("utf-8", "replace"): as_number(amount) for name, amount in sorted(amounts)}


def as_number(thousandths: int) -> float:
    """An amount for JSON.

    >>> as_number(500), as_number(4000)
    (0.5, 4)
    """
    return thousandths / THOUSANDTHS if thousandths % THOUSANDTHS else thousandths // THOUSANDTHS


def shown_number(amount: float) -> str:
    """An amount of JSON as people write it.

    >>> shown_number(64_000_000_000), shown_number(0.5)
    ('64G', '0.5')
    """
    return amount_text(round(amount * THOUSANDTHS))


def shown_requirements(requires: bytes) -> list[str]:
    """What a job requires, for JSON.

    >>> shown_requirements(b"gpu,memory=64G"), shown_requirements(b"")
    (['gpu', 'memory=64G'], [])
    """
    return requires.decode("utf-8", "replace").split(",") if requires else []


def _canonical(name: bytes, amount: int) -> bytes:
    return b"%b=%b" % (name, amount_text(amount).encode())


def _written(amount: object) -> str:
    """The text of an amount in a program, or in JSON."""
    if isinstance(amount, str):
        return amount
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise ValueError(f"an amount is a number, or a text such as 64G, not {amount!r}")
    return f"{amount:f}" if isinstance(amount, float) else str(amount)


def _read_amount(part: str, amounts: dict[bytes, int]) -> None:
    if not isinstance(part, str) or "=" not in part:
        raise ValueError(f"a resource is a name with an amount, such as memory=64G, not {part!r}")
    name, _, amount = part.partition("=")
    data = checked_tag(name.strip())
    if data in amounts:
        raise ValueError(f"{name.strip()} is said twice")
    amounts[data] = _thousandths(amount)


def _refuse_many(count: int) -> None:
    if count > MOST_TAGS:
        raise ValueError(
            f"there are at most {MOST_TAGS}, each with a name of up to {MOST_TAG_BYTES} bytes, not {count}"
        )
