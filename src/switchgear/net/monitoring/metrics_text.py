"""The text formats of Prometheus and OpenMetrics: families of samples, and labels with any text in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from switchgear.model.duration_histogram import BOUNDS_US, DurationHistogram

__all__ = ["END_OF_METRICS", "Metric", "family_head", "histogram_lines", "label", "label_text", "labels"]

END_OF_METRICS: Final = b"# EOF\n"  # of OpenMetrics only

# The bounds of the buckets of all histograms, as they are written; `float` as both formats have it.
BUCKETS: Final = (*(f'le="{bound_us / 1_000_000!r}"' for bound_us in BOUNDS_US), 'le="+Inf"')

LONGEST_LABEL: Final = 256  # of a name that may have any length; monitoring systems keep it with every sample


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name as its samples have it (those of a histogram add `_bucket`, `_count` and `_sum`), its kind
    and its labels."""

    name: str
    kind: str  # counter, gauge, histogram or info
    labels: tuple[str, ...]
    help: str

    @property
    def family(self) -> str:
        """Its name in the head of OpenMetrics, which is without the ends of counters and infos."""
        return self.name.removesuffix("_total").removesuffix("_info")


def family_head(metric: Metric, *, is_open: bool) -> str:
    """The lines before the samples of a family; `is_open` for OpenMetrics."""
    name, kind = (metric.family, metric.kind) if is_open else (metric.name, metric.kind)
    if kind == "info" and not is_open:
        kind = "gauge"  # Prometheus's own format has no infos
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


def label_text(name: bytes) -> str:
    """The name of something as the value of a label: in UTF-8, in one line, of limited length, and not yet escaped.

    Two names may become the same text.
    """
    text = name.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 3] + "..."


def label(name: str, value: str) -> str:
    """A label, escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'


def labels(names: Sequence[str], values: Sequence[str]) -> str:
    """Several labels."""
    return ",".join([label(name, value) for name, value in zip(names, values, strict=True)])


def histogram_lines(name: str, some_labels: str, histogram: DurationHistogram) -> str:
    """The samples of a histogram: buckets that each contain the ones before, count and sum."""
    prefix = f"{name}_bucket{{{some_labels}{',' if some_labels else ''}"
    total = 0
    lines = []
    for bucket, count in zip(BUCKETS, histogram.counts(), strict=True):
        total += count
        lines.append(f"{prefix}{bucket}}} {total}\n")
    braces = f"{{{some_labels}}}" if some_labels else ""
    lines.append(f"{name}_count{braces} {total}\n{name}_sum{braces} {histogram.sum_us / 1_000_000!r}\n")
    return "".join(lines)
