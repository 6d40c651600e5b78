"""`modules_page`: which part of the package imports which, drawn from the imports, as the page docs/modules.md.

Arrows that follow from others are left out: if a imports b and c, and b imports c, there is no arrow from a to c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.test_layers import LAYERS, MODULES, ROOT, imports_of, module_name, package_of

__all__ = ["PAGE", "modules_page"]

PAGE = Path(__file__).parents[2] / "docs" / "modules.md"

# Packages whose modules are drawn too; a folder in a package, such as one protocol, is one node.
DRAWN_PACKAGES = ("engine", "protocols", "storage", "net", "client", "app", "cli")

HEAD = """\
# Modules

These pictures are drawn from the imports by `make modules`, and a test fails when they are out of date. An arrow means
"imports". Arrows that follow from others are left out. [ARCHITECTURE](../ARCHITECTURE.md) says what each part does.

## Layers

A module imports only from layers below its own, and parts of one layer do not know each other
(`tests/test_layers.py`).
"""

Graph = dict[str, set[str]]


def modules_page() -> str:
    """The whole page."""
    imports = {module_name(path): known(imports_of(path)) for path in MODULES}
    lines = [HEAD, *drawn(reduced(graph_of_packages(imports)), layers=True)]
    for package in DRAWN_PACKAGES:
        graph = graph_in_package(package, imports)
        lines += ["", f"## {package}", "", *drawn(reduced(graph), layers=False)]
    return "\n".join(lines) + "\n"


def known(imported: Iterable[str]) -> set[str]:
    """The modules and folders of the package among imported names."""
    names = {module_name(path) for path in MODULES}
    names |= {name.rpartition(".")[0] for name in names}
    return {name for name in imported if name in names and name != "switchgear"}


def graph_of_packages(imports: Mapping[str, set[str]]) -> Graph:
    packages: Graph = {package_of(module): set() for module in imports}
    for module, others in imports.items():
        packages[package_of(module)] |= {package_of(other) for other in others} - {package_of(module)}
    return packages


def graph_in_package(package: str, imports: Mapping[str, set[str]]) -> Graph:
    """Modules of a package, and folders in it as single nodes."""
    graph: Graph = {}
    for module, others in imports.items():
        if package_of(module) == package:
            node = node_of(module)
            graph.setdefault(node, set())
            graph[node] |= {node_of(other) for other in others if package_of(other) == package} - {node, ""}
    return graph


def node_of(module: str) -> str:
    """The file or folder in its package that a module belongs to; empty for the package itself."""
    package, *parts = module.split(".")[1:]
    is_folder = bool(parts) and (ROOT / package / parts[0]).is_dir()
    return f"{parts[0]}/" if is_folder else parts[0] if parts else ""


def reduced(graph: Graph) -> Graph:
    """The graph without arrows that follow from others.  Nodes of a circle keep all theirs."""
    reach = {node: reachable(graph, node) for node in graph}
    kept: Graph = {}
    for node, others in graph.items():
        circular = {other for other in others if node in reach[other]}
        implied = {far for near in others - circular for far in reach[near]}
        kept[node] = {other for other in others if other in circular or other not in implied}
    return kept


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    pending = list(graph.get(start, ()))
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += graph.get(node, ())
    return found


def drawn(graph: Graph, *, layers: bool) -> list[str]:
    """A flowchart in Mermaid's language, which GitHub and others draw."""
    lines = ["```mermaid", "flowchart TD"]
    if layers:
        for number in reversed(range(len(LAYERS))):
            packages = [package for package in LAYERS[number] if package in graph]
            lines.append(f"    subgraph layer{number}[ ]")
            lines += [f"        {identifier(package)}[{package}]" for package in packages]
            lines.append("    end")
    else:
        lines += [f"    {identifier(node)}[{node}]" for node in sorted(graph)]
    lines += [
        f"    {identifier(node)} --> {identifier(other)}" for node in sorted(graph) for other in sorted(graph[node])
    ]
    return [*lines, "```"]


def identifier(node: str) -> str:
    """A word that Mermaid does not take for one of its own, such as `end`."""
    return "m_" + node.strip("/").replace("/", "_")
