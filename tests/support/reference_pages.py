"""`reference_pages`: the public classes and functions with their methods, fields and texts, from the source.

What programs import from `switchgear` and `switchgear.testing` is public, and so is every class that a public method
returns.  The pages are docs/reference/*.md.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import switchgear
import switchgear.testing

__all__ = ["FOLDER", "public_names", "reference_pages"]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
PACKAGE: Final = Path(switchgear.__file__).parent

# Which page a module is on, by the beginning of its name.
PAGES: Final = (
    ("switchgear.testing", "testing.md", "Testing"),
    ("switchgear.errors", "errors.md", "Errors"),
    ("switchgear.client", "clients.md", "Clients and workers of single protocols"),
    ("switchgear.hosting", "servers.md", "Servers in your program"),
    ("switchgear.app.payloads", "payloads.md", "Payloads"),
    ("switchgear", "app.md", "Apps, tasks and jobs"),
)
# Classes that public methods name, and that are documented by the pages of their protocols or not at all.
INTERNAL: Final = frozenset(
    {"AppTracing", "AppTransport", "AwaitedJobs", "Hint", "JobEnd", "JobSubscriber", "PlannedJob", "SendSpan",
     "ServerLocation", "StepsBefore", "SubmitRequest"}
)  # fmt: skip
# Classes whose objects public functions return, though their annotations do not say so.
RETURNED: Final = (("CurrentJob", "switchgear.app.current_job"),)
HEAD: Final = """\
# {title}

Made from the source by `make reference`; a test fails when it is out of date. [The Python API](../howto/python-api.md)
explains how these belong together.
"""


@dataclass(frozen=True)
class PublicThing:
    """A public class, function or value, where it is defined."""

    name: str
    module: str
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None

    @property
    def page(self) -> str:
        return next(page for prefix, page, _ in PAGES if self.module.startswith(prefix))


@functools.cache
def source_of(module: str) -> tuple[str, ast.Module]:
    """The text of a module, and its tree."""
    path = inspect.getsourcefile(importlib.import_module(module))
    assert path is not None
    text = Path(path).read_text(encoding="utf-8")
    return text, ast.parse(text)


@functools.cache
def classes_of_package() -> dict[str, str]:
    """The modules of all classes of the library, by name."""
    found: dict[str, str] = {}
    for path in sorted([*PACKAGE.glob("app/**/*.py"), *PACKAGE.glob("testing/*.py"), *PACKAGE.glob("client/**/*.py")]):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = module
    return found


def thing(name: str, module: str) -> PublicThing:
    _, tree = source_of(module)
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    return PublicThing(name, module, next((node for node in reversed(nodes) if node.name == name), None))


def public_names() -> list[tuple[str, str]]:
    """What programs import, with its module."""
    found: list[tuple[str, str]] = []
    for package in (switchgear, switchgear.testing):
        for name in package.__all__:
            value = getattr(package, name)
            module = getattr(value, "__module__", None)
            if name != "__version__":
                found.append((name, module if isinstance(module, str) else package.__name__))
    return found


def public_things() -> list[PublicThing]:
    """All that the pages show: what programs import, and what its methods return."""
    found = {name: thing(name, module) for name, module in (*public_names(), *RETURNED)}
    left = list(found.values())
    while left:
        each = left.pop()
        for name in sorted(returned_classes(each)):
            if name not in found and name not in INTERNAL:
                found[name] = thing(name, classes_of_package()[name])
                left.append(found[name])
    return sorted(found.values(), key=lambda each: each.name.lower())


def returned_classes(each: PublicThing) -> set[str]:
    """Classes of the library that a public method returns, or that a field has."""
    known = classes_of_package()
    names: set[str] = set()
    if each.node is None:
        return names
    for node in ast.walk(each.node):
        annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            annotation = node.returns
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            annotation = node.annotation
        if annotation is not None:
            names |= set(re.findall(r"\w+", ast.unparse(annotation))) & known.keys()
    return {name for name in names if not name.startswith("_")}


# --- writing ---


def reference_pages() -> dict[str, str]:
    """The texts of the pages, by file name."""
    things = public_things()
    pages: dict[str, str] = {}
    for _, file, title in PAGES:
        own = [each for each in things if each.page == file]
        lines = [HEAD.format(title=title), " · ".join(f"[{each.name}](#{each.name.lower()})" for each in own), ""]
        for each in own:
            lines += section(each)
        pages[file] = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"
    return pages


def section(each: PublicThing) -> list[str]:
    lines = [f"## {each.name}", ""]
    if each.node is None:
        return [*lines, f"A value of `{each.module}`.", ""]
    if isinstance(each.node, ast.ClassDef):
        return [*lines, *class_section(each.node, each.module)]
    return [*lines, "```python", signature(each.node), "```", "", *text_of(each.node), ""]


def class_section(node: ast.ClassDef, module: str) -> list[str]:
    bases = [ast.unparse(base) for base in node.bases]
    lines = [
        f"`class {node.name}{'(' + ', '.join(bases) + ')' if bases else ''}` in `{module}`",
        "",
        *text_of(node),
        "",
    ]
    first = next((each for each in methods(node) if each.name == "__init__"), None)
    if first is not None:
        lines += ["```python", signature(first, node.name), "```", "", *text_of(first), ""]
    rows = [f"| `{name}` | `{kind}` | {text} |" for name, kind, text in fields(node, module)]
    if rows:
        lines += ["| field | type | |", "|---|---|---|", *rows, ""]
    for each in methods(node):
        if not each.name.startswith("_") and ast.get_docstring(each):  # without one, it is as in the base class
            lines += [f"**`{signature(each)}`**", "", *text_of(each), ""]
    return lines


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods that are no properties, without their overloads."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in each.decorator_list}
            if not decorators & {"overload", "property", "cached_property", "setter"}:
                yield each


def fields(node: ast.ClassDef, module: str) -> Iterator[tuple[str, str, str]]:
    """Name, type and text of each public attribute."""
    source = source_of(module)[0].splitlines()
    for each, following in zip(node.body, [*node.body[1:], None]):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            text = _string(following) or source[each.lineno - 1].partition("  # ")[2]
            yield each.target.id, cell(ast.unparse(each.annotation)), cell(text)
    for initial in node.body:
        if isinstance(initial, ast.FunctionDef) and initial.name == "__init__":
            for one, following in zip(initial.body, [*initial.body[1:], None]):
                target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
                if isinstance(target, ast.Attribute) and _string(following):
                    kind = cell(ast.unparse(one.annotation)) if isinstance(one, ast.AnnAssign) else ""
                    yield target.attr, kind, cell(_string(following))
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and is_property(each):
            kind = cell(ast.unparse(each.returns)) if each.returns is not None else ""
            yield each.name, kind, cell(" ".join((ast.get_docstring(each) or "").split()))


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)


def _string(node: ast.AST | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str = "") -> str:
    """The line that defines it, without `self`."""
    arguments = re.sub(r"^(self|cls)(, /)?(, )?", "", ast.unparse(node.args))
    if name:
        return f"{name}({arguments})"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{prefix}{node.name}({arguments}){returned}"


def text_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The docstring; examples in it stay as they are."""
    text = ast.get_docstring(node) or ""
    lines: list[str] = []
    is_example = False
    for line in text.splitlines():
        starts = line.lstrip().startswith(">>>")
        if starts and not is_example:
            lines += ["```python"]
            is_example = True
        elif is_example and not line.strip():
            lines += ["```"]
            is_example = False
        lines.append(line)
    return [*lines, "```"] if is_example else lines
