"""How the modules on the path of every job are compiled; all else about the package stands in pyproject.toml.

They are plain typed Python, which mypyc turns into C.  The sources lie beside the compiled modules in the package, and
are what runs where those are missing: in a checkout, and where the package was built without a C compiler.  See
docs/decisions/010-compiled.md.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "scripts"))

from build_backend import why_not_compiled  # noqa: E402

# What is compiled: every module of these packages, and these single ones.
PACKAGES = ("engine", "model", "protocols")
MODULES = (
    "access/permissions",
    "json_bytes",
    "memory",
    "net/clock",
    "net/commits",
    "net/held_output",
    "net/history",
    "net/hub",
    "net/payload_reads",
    "net/staged_changes",
    "net/connections/long_output",
    "net/connections/tcp_listener",
    "net/connections/tcp_connection",
    "net/connections/zmtp_listener",
    "numbers",
    "states",
    "storage/base",
    "storage/memory",
    "storage/postgres_rows",
    "storage/sqlite_rows",
    "telemetry",
    "text",
    "timetable",
)

# Not these: msgspec reads the types of their fields at run time, and compiled classes have none to be read; or they
# extend an exception that is not compiled.
EXCEPT = (
    "protocols/gearman/job_options",
    "protocols/http/openapi",
    "protocols/http/problems",
    "protocols/http/schemas",
)
EXCEPT_PACKAGES = ("protocols/http/routes",)

# Nor the declarations of protocols: settings and clients read them, and need not load the compiled library for that.
DECLARATIONS = ("plugin.py", "bridge_plugin.py")

# Not those of the checkout: the packages that types are looked up in need not be there when this one is built.
MYPY_OPTIONS = ["--config-file=", "--ignore-missing-imports", "--no-error-summary"]


def sources() -> list[str]:
    """The files to be compiled; one without a line has nothing to gain."""
    package = ROOT / "src" / "switchgear"
    files = [package / f"{name}.py" for name in MODULES]
    for package_name in PACKAGES:
        files += sorted((package / package_name).rglob("*.py"))
    unwanted = {package / f"{name}.py" for name in EXCEPT} | {file for file in files if file.name in DECLARATIONS}
    for package_name in EXCEPT_PACKAGES:
        unwanted.update((package / package_name).rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files if file.stat().st_size and file not in unwanted]


def extensions() -> list[Extension]:
    """One C file for each module: their compilation can be shared among processors, and what runs is as fast."""
    from mypyc.build import mypycify

    os.chdir(ROOT)
    made = list(mypycify([*MYPY_OPTIONS, *sources()], opt_level="2", debug_level="0", multi_file=True))
    for extension in made:
        if "-Werror" in extension.extra_compile_args:  # what a compiler yet to come warns of must not stop anybody
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
    return made


class CleanBuild(build):
    """Forgets what an earlier build has left to be packed: it may since have been deleted, or no longer be compiled."""

    def run(self) -> None:
        library = Path(self.build_lib)
        for path in (library / "switchgear", Path(self.get_finalized_command("bdist_wheel").bdist_dir)):
            shutil.rmtree(path, ignore_errors=True)
        for path in library.glob("*__mypyc.*"):
            path.unlink()
        super().run()


class ParallelBuild(build_ext):
    """Runs as many C compilers at a time as there are processors.  By itself setuptools does so only for extensions,
    and here one library holds nearly everything."""

    def forget_other_objects(self) -> None:
        """Delete what was compiled in another way: with other options, or for another Python."""
        from mypy.version import __version__ as mypy_version

        options = sorted({" ".join(extension.extra_compile_args) for extension in self.extensions})
        way = repr([self.compiler.compiler_so, options, sys.version, mypy_version])
        folder = Path(self.build_temp)
        stamp = folder / "compiled-with"
        if stamp.exists() and stamp.read_text() == way:
            return
        for path in folder.rglob("*.o"):
            path.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        stamp.write_text(way)
        self.force = True

    def build_extensions(self) -> None:
        compiler: Any = self.compiler
        prepare = compiler._setup_compile
        shared = [Path(__file__), *Path("build").glob("*.h")]  # a change to one of these concerns every file
        changed_at = max(path.stat().st_mtime for path in shared)

        def is_newer(target: str, source: str) -> bool:
            file = Path(target)
            return file.exists() and file.stat().st_mtime > max(changed_at, Path(source).stat().st_mtime)

        def compile_files(
            sources: list[str],
            output_dir: str | None = None,
            macros: Any = None,
            include_dirs: Any = None,
            debug: bool = False,
            extra_preargs: Any = None,
            extra_postargs: Any = None,
            depends: Any = None,
        ) -> list[str]:
            macros, objects, extra, options, build = prepare(
                output_dir, macros, include_dirs, sources, depends, extra_postargs
            )
            arguments = compiler._get_cc_args(options, debug, extra_preargs)

            def compile_file(target: str) -> None:
                source, suffix = build[target]
                compiler._compile(target, source, suffix, arguments, extra, options)

            stale = [target for target in objects if target in build and not is_newer(target, build[target][0])]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(compile_file, stale))
            return list(objects)

        if compiler.compiler_type == "unix":
            self.forget_other_objects()
            compiler.compile = compile_files
        super().build_extensions()


# An editable install runs the sources, whatever is edited in them; and only a wheel holds modules, so all the rest that
# this file is run for (the name, the version, the archive of sources) can do without a compiler.
if "bdist_wheel" in sys.argv:
    reason = why_not_compiled()
    if reason:
        print(f"switchgear: not compiled: {reason}", file=sys.stderr)
        setup(cmdclass={"build": CleanBuild})
    else:
        setup(ext_modules=extensions(), cmdclass={"build": CleanBuild, "build_ext": ParallelBuild})
else:
    setup()
