"""Scripts and style sheets without what only people need."""

from __future__ import annotations

import subprocess

import pytest

from switchgear.dashboard.assets import VENDORED, file_names, read_file
from switchgear.dashboard.compacting import compact_script, compact_style
from tests.support.peers import require_program


@pytest.mark.parametrize(
    ("script", "compact"),
    [
        ("// why\n\n  a;  // here\n    b;\n", "a;b;"),
        ("/* one\n two */ const a = 1 + 2;", "const a=1+2;"),
        ("a + +b - -c", "a+ +b- -c"),
        ("return  x  in y", "return x in y"),
        ("const a = 1\nconst b = 2\n", "const a=1\nconst b=2"),
        ("f(a,\n  b\n)", "f(a,b)"),
        ("x = 'a // b'; y = \"it's  /* no */\";", "x='a // b';y=\"it's  /* no */\";"),
        ("x = a / b / c;", "x=a/b/c;"),
        ("x = /[/'] `  \\/ b/g.test( y );", "x=/[/'] `  \\/ b/g.test(y);"),
        ("return / a/ .test(x)", "return/ a/.test(x)"),
        ("`a  ${ b + `c  ${ d }` }  // e`", "`a  ${b+`c  ${d}`}  // e`"),
        ("`one\n   two  three\n`", "`one\ntwo  three\n`"),
        ("`${ { a: 1 }.a } \\` \\${`", "`${{a:1}.a} \\` \\${`"),
        ("class A { #b = 1; get c() { return this.#b; } }", "class A{#b=1;get c(){return this.#b;}}"),
        ("if (a) {\n  b();\n}\nc();", "if(a){b();}\nc();"),
    ],
)
def test_a_script(script: str, compact: str) -> None:
    assert compact_script(script) == compact + "\n"
    assert compact_script(compact) == compact + "\n"


def test_a_style_sheet() -> None:
    sheet = (
        '/* why */\na:hover,\n.b > c { margin: 0 2px; font: 1px "A B"; }\n'
        "@media (width < 9px) { d :first-child { top: 0; } }\n"
    )
    assert compact_style(sheet) == (
        'a:hover,.b > c{margin:0 2px;font:1px "A B"}\n@media (width < 9px){d :first-child{top:0}\n}\n'
    )


def test_all_scripts_are_still_scripts() -> None:
    """The tests in a browser run them; this one names the file."""
    node = require_program("node")
    for name in file_names():
        if name.endswith(".js") and not name.startswith(VENDORED):
            command = [node, "--check", "--input-type=module", "-"]
            done = subprocess.run(command, input=read_file(name), capture_output=True)
            assert done.returncode == 0, f"{name}: {done.stderr.decode()}"
