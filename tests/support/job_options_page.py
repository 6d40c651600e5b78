"""The table of docs/job-options.md, made of the table of job options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchgear.job_options import DAY_SECONDS, JOB_OPTIONS, SERVERS_SETTING, JobOption, OptionKind
from switchgear.tags import MOST_TAG_BYTES, MOST_TAGS

__all__ = ["job_options_table"]


def job_options_table() -> str:
    """The table of job options in Markdown."""
    lines = [
        "| option | type | default | range | said by | schedule | Python | command line | store |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for option in JOB_OPTIONS:
        python = ", ".join(f"`{name}`" for name in option.python)
        if option.python_remark:
            python += f" ({option.python_remark})"
        cells = (
            f"`{option.name}`" + "".join(f", formerly `{name}`" for name in option.old_names),
            TYPE_TEXTS[option.kind],
            _default_text(option),
            _range_text(option),
            option.said_by,
            f"`{option.schedule}`" if option.schedule else "",
            python,
            f"`{option.command_line}`" if option.command_line else "",
            option.kept.value,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TYPE_TEXTS: Final[Mapping[OptionKind, str]] = {
    OptionKind.FLAG: "true or false",
    OptionKind.COUNT: "whole number",
    OptionKind.SPAN: "seconds",
    OptionKind.MOMENT: "seconds since the epoch",
    OptionKind.TEXT: "text",
    OptionKind.TRACE: "traceparent of W3C Trace Context",
    OptionKind.CHOICE: "word",
    OptionKind.CHOICES: "word, or a list of words",
    OptionKind.HANDLES: "list of handles",
    OptionKind.REQUIREMENTS: "list of tags and amounts, or these with commas",
}


def _default_text(option: JobOption) -> str:
    if option.default == SERVERS_SETTING:
        return "a lost worker counts as an attempt" if option.name == "crash_limit" else "the server's setting"
    if option.kind in (OptionKind.CHOICE, OptionKind.CHOICES):
        return f"`{option.json_default}`"
    return "false" if option.kind is OptionKind.FLAG else "none"


def _range_text(option: JobOption) -> str:
    if option.words:
        return ", ".join(f"`{word}`" for word in option.words)
    if option.kind is OptionKind.COUNT:
        return f"0 (no limit) to {option.most:,}"
    if option.kind is OptionKind.REQUIREMENTS:
        return f"up to {MOST_TAGS}; names of up to {MOST_TAG_BYTES} bytes, without spaces, commas and `=`"
    if option.kind is OptionKind.TRACE:
        return f"{option.most} characters"
    if option.kind is OptionKind.HANDLES:
        return f"up to {option.most:,}"
    if option.kind is OptionKind.TEXT:
        return f"up to {option.most} bytes, no NUL" if option.most else "up to `limits.name_bytes`, no NUL"
    if option.kind is OptionKind.SPAN and option.most:
        return f"0 to {option.most:,} ({option.most // DAY_SECONDS} days)"
    return "0 and more" if option.kind in (OptionKind.SPAN, OptionKind.MOMENT) else ""
