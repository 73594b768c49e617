"""Who may import whom, read from the sources; and what has to start without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cudagraph_doctor

OURS = "cudagraph_doctor"
PACKAGE = Path(cudagraph_doctor.__file__).parent

PLAIN = {
    *("byte_sizes", "errors", "findings", "policy", "progress", "rules", "settings"),
    *("graph.illegal", "observation.fixes", "observation.judging", "observation.model"),
    "path_names",
    *("graph.model", "replays.model", "replays.plain", "replays.surveyed"),
    *("causes", "causes.join", "causes.same", "causes.wording"),
    *(
        "report",
        "report.audit",
        "report.audit_measured",
        "report.buckets",
        "report.anchors",
        "report.causes",
        "report.csv",
        "report.finding_text",
        "report.gate",
        "report.github",
        "report.json",
        "report.junit",
        "report.layout",
        "report.paths",
        "report.printable",
        "report.sarif",
        "report.sentences",
        "report.terminal",
        "report.values",
        "report.view",
    ),
}
"""Start fast and run anywhere: the standard library and each other (rich where text is laid out)."""
LAID_OUT = (
    "report.audit",
    "report.audit_measured",
    "report.buckets",
    "report.causes",
    "report.finding_text",
    "report.layout",
    "report.terminal",
)
PROGRAM = {"cli", "child", "display", "examine", "worker", "report"}
"""The program around the library; what finds faults must be usable without it."""


def sources() -> Iterator[tuple[str, Path]]:
    """(module name without "cudagraph_doctor.", file), links followed."""
    for top in (PACKAGE, *(p for p in PACKAGE.iterdir() if p.is_symlink())):
        for file in sorted(top.rglob("*.py")):
            name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
            yield name.removesuffix(".__init__").removesuffix("__init__"), file


MODULES = dict(sources())


def imported(module: str) -> set[str]:
    """All modules that the file imports, anywhere in it, by full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: relative import"
            assert node.module
            found.add(node.module)
            found.update(
                f"{node.module}.{alias.name}"
                for alias in node.names
                if f"{node.module}.{alias.name}".removeprefix(f"{OURS}.") in MODULES
            )
    return found


def ours(module: str) -> set[str]:
    """Modules of ours that it imports, without the leading "cudagraph_doctor."."""
    return {name.removeprefix(f"{OURS}.") for name in imported(module) if name.startswith(f"{OURS}.")}


def others(module: str) -> set[str]:
    """Packages that it imports and that are neither ours nor the standard library's."""
    tops = {name.split(".")[0] for name in imported(module)}
    return tops - set(sys.stdlib_module_names) - {OURS}


def below(*tops: str) -> list[str]:
    """Names of the modules in these packages."""
    return sorted(name for name in MODULES if name.split(".")[0] in tops)


def test_all_modules_are_seen() -> None:
    assert {"", "cli", "checks", "reference_models", "graph.model", "report.terminal"} <= set(MODULES)


@pytest.mark.parametrize("module", sorted(PLAIN))
def test_plain_data_and_reports_need_nothing(module: str) -> None:
    assert others(module) <= ({"rich"} if module in LAID_OUT else set())
    assert {name for name in ours(module) if name in MODULES} <= PLAIN


def test_every_report_format_is_held_to_it() -> None:
    assert set(below("report")) <= PLAIN


@pytest.mark.parametrize(
    "module", below("audit", "graph", "measuring", "misses", "observation", "proof", "replays", "traces", "checks")
)
def test_what_finds_faults_knows_nothing_of_the_program(module: str) -> None:
    assert not {name for name in ours(module) if name.split(".")[0] in PROGRAM}


@pytest.mark.parametrize("module", below("checks"))
def test_checks_do_not_import_each_other(module: str) -> None:
    assert not {name for name in ours(module) if name.startswith("checks.")} - {module}


@pytest.mark.parametrize("module", below("audit", "graph", "misses", "observation", "proof", "replays", "traces"))
def test_the_foundation_does_not_import_checks(module: str) -> None:
    assert not {name for name in ours(module) if name.startswith("checks")}


@pytest.mark.parametrize("module", below("reference_models"))
def test_the_bundled_models_are_written_as_a_users_would_be(module: str) -> None:
    # "errors": a missing compiler for the bundled kernels is said as everything else is.
    assert {name for name in ours(module) if not name.startswith("reference_models")} <= {"target", "errors"}


@pytest.mark.parametrize(
    "module",
    sorted(set(MODULES) - {"audit_command", "cli", "command_options", "configured", "measure_options", "__main__"}),
)
def test_only_the_command_line_knows_click(module: str) -> None:
    assert "click" not in others(module)


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "diff --help", "rules", "explain CGD101", "report --help", "init --help", "buckets --help"),
        "audit --help",
    ],
)
def test_starts_without_torch(words: str) -> None:
    program = (
        "import sys\n"
        "from cudagraph_doctor.cli import main\n"
        f"sys.argv = ['cudagraph-doctor', *{words.split()!r}]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'pandas', 'numpy'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stderr
