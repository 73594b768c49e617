"""A script for each confirmed finding that shows the fault with torch alone: to paste into a bug report.

It plays the user's own target, which is what the fault is in, and is made from one of `skeletons/repro_*.py`: the lines
between "what was seen" and "end of what was seen" are replaced. Where no script can play the target, the command is
what remains (`command`).
"""

from __future__ import annotations

import importlib.resources
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cudagraph_doctor
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Finding, Proof, Severity
from cudagraph_doctor.replays.model import History, Replay, Run
from cudagraph_doctor.spec import Spec, parse

_SEEN = re.compile(r"# what was seen\n.*?# end of what was seen\n", re.DOTALL)
_FORMS = {"loop": "repro_loop", "engine": "repro_engine"}
"""Form of a target -> the skeleton that plays it."""
_TWIN = " (twin)"
_WIDTH = 116


@dataclass(frozen=True, slots=True)
class Repro:
    """A script."""

    name: str
    """Of its file."""
    text: str


def command(run: Run) -> str:
    """What shows the fault with the doctor."""
    words = ["cudagraph-doctor", "inputs", run.target, "--backend", run.backend, "--seed", str(run.seed)]
    for name, value in run.arguments.items():
        words += ["--target-arg", f"{name}={value}"]
    if run.fault:
        words += ["--fault", run.fault.removesuffix(_TWIN), *(["--twin"] if run.fault.endswith(_TWIN) else [])]
    return shlex.join(words)


def scripts(history: History, findings: Iterable[Finding], app_dir: Path) -> list[Repro]:
    """One for each confirmed finding that is more than a note; none for a target that no script can play.

    Args:
        history: the run in which they were found.
        findings: what was found.
        app_dir: the folder that the target's module was imported from.
    """
    skeleton = _FORMS.get(history.run.form)
    if skeleton is None or not history.replays:
        return []
    text = (importlib.resources.files("cudagraph_doctor.skeletons") / f"{skeleton}.py").read_text(encoding="utf-8")
    made: list[Repro] = []
    for finding in findings:
        if finding.proof is Proof.CONFIRMED and finding.severity is not Severity.NOTE:
            seen = _seen(history, finding, app_dir)
            about = _about(history.run, finding)
            filled = _SEEN.sub(lambda _: seen, text, count=1).replace("ABOUT", about, 1)  # noqa: B023
            made.append(Repro(_name(finding, made), filled))
    return made


def write(folder: Path, repros: Sequence[Repro]) -> list[Path]:
    """Write the scripts into a folder, which is made. Raises UsageError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for repro in repros:
            (folder / repro.name).write_text(repro.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f'Scripts cannot be written into "{folder}".', seen=str(error), fix="Name a folder of yours."
        ) from None
    return [folder / repro.name for repro in repros]


def _name(finding: Finding, made: Sequence[Repro]) -> str:
    culprit = re.sub(r"\W+", "_", finding.culprit.name if finding.culprit else "").strip("_")[:40]
    stem = f"{finding.code}_{culprit}".rstrip("_")
    taken = {repro.name for repro in made}
    return next(name for name in (f"{stem}{n or ''}.py" for n in range(len(taken) + 1)) if name not in taken)


def _about(run: Run, finding: Finding) -> str:
    """Goes into the script's docstring: what was found, and the command that proves it."""
    told = (
        f"{finding.code}: {finding.message}\n\nFound by cudagraph-doctor {cudagraph_doctor.__version__}: {command(run)}"
    )
    return told.replace("\\", "\\\\").replace('"""', "'''")


def _seen(history: History, finding: Finding, app_dir: Path) -> str:
    """The replaced lines: plan, seed, outputs to look at, how the target is made."""
    replays = _until_seen(history, finding)
    plan: list[tuple[int, ...]] = [(replay.step, replay.rows) for replay in replays]
    if history.run.form == "loop":
        plan = [(replay.step, replay.rows, int(replay.key)) for replay in replays]
    output = next((r.against_eager.difference.partition(":")[0] for r in reversed(replays) if r.harmed), "")
    lines = [
        "# what was seen",
        *_wrapped("PLAN = [", [repr(at) for at in plan]),
        f"SEED = {history.run.seed}",
        f"LOOK_AT: tuple[str, ...] = ({output!r},)" if output else "LOOK_AT: tuple[str, ...] = ()",
        "",
        "",
        "def make_target() -> Any:",
        '    """The target that the fault was seen in."""',
        *(f"    {line}".rstrip() for line in _made(history.run, app_dir)),
        "",
        "",
        "# end of what was seen",
        "",
    ]
    return "\n".join(lines)


def _until_seen(history: History, finding: Finding) -> Sequence[Replay]:
    """All replays up to the one at which the finding's effect shows in an output."""
    seen = next((r for r in history.replays if (r.step, r.key) == (finding.step, finding.key)), history.replays[-1])
    last = seen.index if seen.harm_step is None else max(seen.index, seen.harm_step)
    return [replay for replay in history.replays if replay.index <= last]


def _wrapped(begin: str, items: Sequence[str]) -> list[str]:
    whole = f"{begin}{', '.join(items)}]"
    return [whole] if len(whole) <= _WIDTH else [begin, *(f"    {item}," for item in items), "]"]


def _made(run: Run, app_dir: Path) -> list[str]:
    """The body of `make_target`."""
    spec = parse(run.target)
    arguments = "".join(f", {name}={_value(text)}" for name, text in run.arguments.items())
    if spec.kind == "reference":
        fault = run.fault.removesuffix(_TWIN)
        planted = f", fault={fault!r}, twin={run.fault.endswith(_TWIN)}" if fault else ""
        return [
            "from cudagraph_doctor.reference_models import load",
            "",
            f'return load({spec.attr!r}, device="cuda", seed=SEED{planted}{arguments})',
        ]
    return [
        "import importlib",
        "import importlib.util",
        "import inspect",
        "",
        *_imported(spec, app_dir),
        f"made = module.{spec.attr}",
        'if not inspect.isclass(made) and hasattr(made, "reset"):',
        "    return made",
        'seed = {"seed": SEED} if "seed" in inspect.signature(made).parameters else {}',
        f'return made(device="cuda", **seed{arguments})',
    ]


def _imported(spec: Spec, app_dir: Path) -> list[str]:
    """Lines that import the target's module as `module`."""
    folder, name = app_dir.resolve(), spec.where
    file = Path(spec.where).resolve()
    if spec.kind == "file" and (file.parent / "__init__.py").exists():  # inside a package: by its dotted name
        folder = next(parent for parent in file.parents if not (parent / "__init__.py").exists())
        name = ".".join(file.relative_to(folder).with_suffix("").parts)
    elif spec.kind == "file":
        return _executed(file)
    return [f"sys.path.insert(0, {str(folder)!r})", f"module = importlib.import_module({name!r})"]


def _executed(file: Path) -> list[str]:
    return [
        f"sys.path.insert(0, {str(file.parent)!r})",
        f"found = importlib.util.spec_from_file_location({file.stem!r}, {str(file)!r})",
        "assert found and found.loader",
        "module = sys.modules[found.name] = importlib.util.module_from_spec(found)",
        "found.loader.exec_module(module)",
    ]


def _value(text: str) -> str:
    """A --target-arg as a Python literal: a number or truth value if it reads as one."""
    if text.lower() in ("true", "false", "none"):
        return text.capitalize()
    return text if re.fullmatch(r"[+-]?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?", text) else repr(text)
