"""Scripts and style sheets without what only people need: comments, indentation, spaces around operators.

Names and everything else stay as they are, so what a browser shows of a script is still its source.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["compact_script", "compact_style"]

# What a script consists of, outside of templates.  A slash is looked at by itself.
TOKEN: Final = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)|(?P<space>\s+)"""
    r"""|(?P<word>[\w$#@]+)|(?P<sign>[\s\S])"""
)
TEMPLATE_TEXT: Final = re.compile(r"(?:\\[\s\S]|[^`\\$]|\$(?!\{))+")
EXPRESSION: Final = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*")
# After these a slash divides; after anything else it begins a regular expression.
BEFORE_DIVISION: Final = re.compile(r"[\w$)\]}\"'`]$")
WORDS_BEFORE_EXPRESSION: Final = frozenset({"return", "typeof", "case", "in", "of"})
IN_WORD: Final = re.compile(r"[\w$#@\\]")
# After these a line goes on in the next one.
GOES_ON: Final = "{([,;=:?&|"


def compact_script(text: str) -> str:
    """A module of JavaScript that does the same."""
    parts: list[str] = []
    nesting: list[str] = []  # of braces: "{" for code, "$" for an expression within a template
    position = 0
    while position < len(text):
        if nesting and nesting[-1] == "`":
            position = _template(text, position, parts, nesting)
            continue
        found = TOKEN.match(text, position)
        assert found is not None
        token = found[0]
        if token == "/" and not _divides(parts):
            expression = EXPRESSION.match(text, position)
            if expression is None:
                raise ValueError(f"a regular expression without an end: {text[position : position + 40]!r}")
            token = expression[0]
        position += len(token)
        if found["comment"]:
            continue
        if found["space"]:
            _space(token, text[position : position + 2], parts)
        else:
            parts.append(token)
            _nest(token, nesting)
    return "".join(parts).strip() + "\n"


def _nest(token: str, nesting: list[str]) -> None:
    if token in ("{", "`"):
        nesting.append(token)
    elif token == "}" and nesting:
        nesting.pop()


def _template(text: str, position: int, parts: list[str], nesting: list[str]) -> int:
    """Copy a piece of a template; its lines lose their indentation."""
    if text.startswith("${", position):
        nesting.append("$")
        parts.append("${")
        return position + 2
    if text[position] == "`":
        nesting.pop()
        parts.append("`")
        return position + 1
    found = TEMPLATE_TEXT.match(text, position)
    assert found is not None
    parts.append(re.sub(r"\s*\n\s*", "\n", found[0]))
    return found.end()


def _divides(parts: list[str]) -> bool:
    last = next((part for part in reversed(parts) if part.strip()), "")
    return bool(BEFORE_DIVISION.search(last)) and last not in WORDS_BEFORE_EXPRESSION


def _space(space: str, following: str, parts: list[str]) -> None:
    """Keep a space between words, and between signs that would become another one; keep most ends of lines."""
    last = parts[-1][-1:] if parts else ""
    if not last or last == "\n" or following[:2] in ("//", "/*"):
        return
    if "\n" in space:
        if last not in GOES_ON and following[:1] not in (")", "]"):
            parts.append("\n")
    elif (IN_WORD.match(last) and IN_WORD.match(following)) or (last in "+-/" and following[:1] == last):
        parts.append(" ")


def compact_style(text: str) -> str:
    """A style sheet that does the same."""
    text = re.sub(r"/\*[\s\S]*?\*/", "", text)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" ?([{};,]) ?", r"\1", text).replace(": ", ":").replace(";}", "}")
    return text.replace("}", "}\n").strip() + "\n"
