"""Puts the program's real output into the README and the docs: between `<!-- KIND ARGUMENT -->` and `<!-- end -->`.

Kinds: `run COMMAND` (what the command prints to stdout, and its exit code if that is not 0), `file PATH` (a file of the
repository), `commands`, `rules`, `faults` and `modules` (made from the code), `bucket_lists` (the table of
`benchmarks/bucket_lists.py`), `measured_keys` (what `tests/record_audit.py` recorded on a GPU), `checkups` (what
`tests/record_checkup.py` recorded), `capture_faults` (how `capture` does on its planted faults: emulated, and as
recorded on a GPU). Run it from anywhere; `--check` writes nothing and names the pages that are stale. Commands run as
on a machine without a GPU, 100 columns wide, with times masked. What another CPU rounds differently does not make a
page stale.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click

from cudagraph_doctor.cli import cli
from cudagraph_doctor.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<open><!-- (?P<kind>\w+)(?: (?P<argument>[^\n]+?))? -->\n)(?P<old>.*?)(?P<close><!-- end -->)", re.S
)
_SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")


def pages() -> list[Path]:
    """The README and every Markdown file below docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regenerated(page: Path) -> str:
    """The text of the page with all of its blocks made anew."""

    def fill(block: re.Match[str]) -> str:
        new = made(block["kind"], block["argument"] or "", page)
        same = block["kind"] == "run" and comparable(new) == comparable(block["old"])
        return block["open"] + (block["old"] if same else new) + block["close"]

    return BLOCK.sub(fill, page.read_text())


def made(kind: str, argument: str, page: Path) -> str:
    """What belongs into a block."""
    if kind == "run":
        return fenced("console", f"$ {argument}\n{output(argument)}")
    if kind == "file":
        return fenced(Path(argument).suffix.removeprefix(".").replace("py", "python"), (ROOT / argument).read_text())
    to_pages = os.path.relpath(ROOT / "docs" / "rules", page.parent)
    tables = {"commands": commands, "rules": rules, "faults": faults, "modules": modules}
    tables |= {"capture_faults": capture_faults, "bucket_lists": bucket_lists, "measured_keys": measured_keys}
    tables |= {"checkups": checkups}
    return tables[kind](to_pages)


def fenced(language: str, text: str) -> str:
    """A code block."""
    return f"```{language}\n{text.strip()}\n```\n"


def comparable(output: str) -> str:
    """The output less what depends on the CPU that made it: notes on rounding, and how large a difference is."""
    output = re.sub(r"^\d+\. note CGD107.*?\n\n", "", output, flags=re.M | re.S)
    output = re.sub(r"(; | and |, )\d+ notes?\b", "", output)
    output = re.sub(r"(?<=\s)[.n]+$", lambda marks: marks[0].replace("n", "."), output, flags=re.M)
    output = output.replace(", n note)", ")")
    output = re.sub(r"\b\d+ runs\b", "runs", output)
    output = re.sub(r"\b\d+ of (\d+)\s+values", r"some of \1 values", output)
    return re.sub(r"-?\b\d+\.\d+(e[-+]\d+)?\b", "#", output)


@functools.cache
def output(command: str) -> str:
    """What `cudagraph-doctor ...` prints, and how it ended."""
    program, *arguments = shlex.split(command)
    assert program == "cudagraph-doctor", command
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor", *arguments],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}\nended with {done.returncode}:\n{done.stderr}")
    ending = f"\n$ echo $?\n{done.returncode}" if done.returncode else ""
    return _SECONDS.sub("… s", done.stdout).rstrip() + ending


def commands(to_pages: str) -> str:
    """The help of the program and of every command."""
    above = click.Context(cli, info_name="cudagraph-doctor", terminal_width=100, **cli.context_settings)
    sections = [("cudagraph-doctor", above.get_help())]
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name, parent=above, terminal_width=100)
        sections.append((f"cudagraph-doctor {name}", context.get_help()))
    return "\n" + "\n".join(f"## {title}\n\n{fenced('text', text)}" for title, text in sections) + "\n"


def rules(to_pages: str) -> str:
    """All rules, each linked to its page."""
    rows = ["| code | name | severity | check | finds |", "| --- | --- | --- | --- | --- |"]
    for rule in RULES.values():
        link = f"[{rule.code}]({to_pages}/{rule.code}.md)"
        rows.append(f"| {link} | {rule.name} | {rule.severity.value} | `{rule.check}` | {rule.summary} |")
    return "\n".join(rows) + "\n"


def faults(to_pages: str) -> str:
    """All planted faults, with the rule and the culprit, and the backends that can see them."""
    from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS

    rows = ["| fault | what is planted | its twin | rule | culprit | form | backends that see it |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for fault in ALL_FAULTS.values():
        link = f"[{fault.rule}]({to_pages}/{fault.rule}.md)"
        backends = "cuda, emulated" if fault.emulated else f"cuda ({fault.why_not_emulated})"
        forms = ", ".join(fault.forms)
        cells = (
            f"`{fault.name}`",
            fault.summary,
            fault.twin,
            link,
            f"`{fault.culprit}`" if fault.culprit else "",
            forms,
            backends,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


@functools.cache
def capture_faults(to_pages: str) -> str:
    """What `capture` and torch alone say of each planted fault of a capture."""
    recorder = _script("tests", "record_capture_faults")
    told = json.loads(recorder.RECORDED.read_text()) if recorder.RECORDED.exists() else {}
    tools = ["with CUPTI", "without CUPTI"] if told else []
    heads = ["fault", "torch alone" if told else "", "`capture`", "emulated", *tools]
    heads = [head for head in heads if head]
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, fault in recorder.CAPTURE_FAULTS.items():
        score = recorder.score(name, recorder.watched(name, False, "emulated")) if fault.emulated else None
        on_gpu = told["faults"].get(name) if told else None
        said = on_gpu["with CUPTI"]["fault"]["message"] if on_gpu else score.message if score else ""
        cells = [f"`{name}`", *([_plain(on_gpu["plain"]) if on_gpu else "not recorded"] if told else []), said]
        cells.append("not seen" if score is None else _named({key: getattr(score, key) for key in recorder.ASKED}))
        for tool in tools:
            if on_gpu is None:
                cells.append("not recorded")
                continue
            twin = on_gpu[tool]["twin"]["status"]
            named = _named({key: on_gpu[tool]["fault"][key] for key in recorder.ASKED})
            cells.append(named if twin == "passed" else f"{named}; twin {twin}")
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    note = "Nothing was recorded on a GPU yet: only the emulated backend is shown."
    if told:
        note = f"Recorded with torch {told['torch']}, {told['device']}."
    return "\n".join([note, "", *rows]) + "\n"


def checkups(to_pages: str) -> str:
    """How `checkup` did on the planted faults, as recorded by `tests/record_checkup.py`."""
    recorder = _script("tests", "record_checkup")
    parts = []
    for backend in ("cuda", "emulated"):
        rows = recorder.read(recorder.DATA / f"checkup_{backend}.jsonl")
        if rows:
            stamps = ", ".join(dict.fromkeys(f"{row.commit}, torch {row.torch}, {row.device}" for row in rows))
            parts.append("\n".join([f"Recorded at {stamps}.", "", *recorder.table(rows, to_pages)]))
    return "\n\n".join(parts or ["Nothing was recorded yet."]) + "\n"


def bucket_lists(to_pages: str) -> str:
    """The best lists against habitual ones, at the costs that the script takes by itself."""
    script = _script("benchmarks", "bucket_lists")
    costs = script.cost_model(script.COSTS)
    return f"Costs {costs.origin}.\n\n{script.table(costs)}"


def measured_keys(to_pages: str) -> str:
    """The keys that were measured on a GPU, and what was predicted from them against what was seen."""
    recorder = _script("tests", "record_audit")
    recorded = {run.name: recorder.load(run.name) for run in recorder.RUNS if recorder.file_of(run.name).exists()}
    if not recorded:
        return "Nothing was recorded on a GPU yet: `python tests/record_audit.py`.\n"
    first = next(iter(recorded.values()))
    note = f"Recorded with torch {first['torch']}, {first['gpu']}: {first['spec']}."
    parts = [note, recorder.keys_table(first), recorder.pools_sentence(first), recorder.runs_table(recorded)]
    return "\n\n".join(parts) + "\n"


def _script(folder: str, name: str) -> ModuleType:
    """A script of the repository, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain(told: dict[str, str]) -> str:
    if not told["raised"]:
        return "nothing"
    said = [f'"{told[which]}" at {told[f"{which}_at"] or "no line of the model"}' for which in ("raised", "first")]
    return ", after ".join(dict.fromkeys(said))


def _named(asked: dict[str, bool]) -> str:
    missing = [name for name, there in asked.items() if not there]
    return f"not: {', '.join(missing)}" if missing else "named"


def modules(to_pages: str) -> str:
    """Every module with the first paragraph of its docstring, package by package."""
    text = []
    for folder in ("cudagraph_doctor", "checks", "reference_models"):
        for file in sorted((ROOT / folder).rglob("*.py"), key=lambda f: (f.parent, f.name != "__init__.py", f)):
            docstring = ast.get_docstring(ast.parse(file.read_text()))
            assert docstring, f"{file} has no docstring"
            paragraph = " ".join(docstring.split("\n\n")[0].split())
            text.append(f"`{file.relative_to(ROOT).as_posix()}`\n:   {paragraph}\n")
    return "\n" + "\n".join(text) + "\n"


def main() -> int:
    """Regenerate, or with `--check` only tell: 1 if a page is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for page in pages():
        text = regenerated(page)
        if text != page.read_text():
            print(page.relative_to(ROOT), "is stale" if check else "regenerated")
            stale += 1
            if not check:
                page.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
