"""The terminal's view of an audit: the sentence, the keys and what they serve, a better list, the simulated course."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.byte_sizes import in_bytes
from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.report import audit_measured
from cudagraph_doctor.report.view import View

CHECK = "audit"
_ROWS = 16
"""Keys that are shown without --verbose."""
_BAR = 20
_CURVE = (1, 2, 4, 8, 16, 32, 64, 128)


def sentence(outcome: Outcome) -> Text:
    """The one sentence, with the run's incompleteness if there is any."""
    errors = any(f.severity.value == "error" and f.proof.value != "suspected" for f in outcome.findings)
    style = "bold red" if errors else "bold green" if outcome.status is Status.PASSED else "bold yellow"
    text = Text(str(outcome.checked.get("summary", {}).get("sentence", "")), style)
    if outcome.status is Status.INCONCLUSIVE:
        text.append(f"\nInconclusive: {outcome.reason}.")
    return text


def tables(outcome: Outcome, view: View) -> Iterator[RenderableType]:
    """Everything below the sentence, findings apart."""
    summary = outcome.checked.get("summary", {})
    if not summary:
        return
    yield from audit_measured.tables(outcome.checked.get("measured"))
    workload, costs = summary["workload"], summary["costs"]
    yield _indented(f"Workload: {workload['origin']} ({workload['steps']:,.6g} steps, {workload['sizes']} sizes).")
    yield _indented(f"Costs: {costs['origin']}.")
    for configuration in summary["configurations"]:
        rank = "" if configuration["rank"] is None else f"rank {configuration['rank']}: "
        rule = f", default list of {configuration['rule']}" if configuration["rule"] else ""
        yield _indented(
            f"{rank}{configuration['source']} ({configuration['engine']}{rule}): {configuration['origin']}."
        )
        for one in configuration["sets"]:
            yield from _set(one, view, alone=len(configuration["sets"]) == 1)
    yield from _simulation(summary["simulation"])


def _set(one: dict[str, Any], view: View, *, alone: bool) -> Iterator[RenderableType]:
    name = "" if alone else f"{one['name']}: "
    kinds = [f"{len(one['full'])} full"] + ([f"{len(one['piecewise'])} piecewise"] if one["piecewise"] else [])
    times = f", each for {len(one['adapters'])} numbers of adapters" if one["adapters"] else ""
    tokens = f"; {one['tokens_per_request']} tokens a request" if one["tokens_per_request"] > 1 else ""
    off = "" if one["padded"] else "; batches are not padded"
    yield _indented(
        f"{name}{one['graphs']} graphs ({' and '.join(kinds)}{times}), sizes in {one['unit']}{tokens}{off}."
    )
    yield from _traffic(one)
    yield _keys(one["table"], view)
    yield from _better(one, view)


def _traffic(one: dict[str, Any]) -> Iterator[RenderableType]:
    met = one["traffic"]
    padding = "" if met["padding_share"] is None else f"; padding {met['padding_share']:.1%} of the replayed rows"
    in_time = f" and {met['padding_share_of_time']:.1%} of the time" if padding and met["padding_share_of_time"] else ""
    pieces = f", piecewise {met['piecewise_share']:.1%}" if met["piecewise_share"] else ""
    eager = f", eager {met['eager_share']:.1%}" if met["eager_share"] else ""
    slow = f" ({met['eager_share_of_time']:.1%} of the time)" if met["eager_share"] else ""
    yield _indented(f"Hit rate {met['hit_rate']:.1%} of the steps{pieces}{eager}{slow}{padding}{in_time}.")
    memory = one["memory"]
    if memory:
        kv = f", or {memory['kv_tokens']:,} tokens of KV cache" if memory["kv_tokens"] is not None else ""
        yield _indented(
            f"Memory: {in_bytes(memory['total_bytes'])} with one pool, largest first"
            f" ({in_bytes(memory['graph_bytes'] + memory['own_pools_bytes'])} with a pool each){kv}."
        )
    if one["capture_ms"] is not None:
        yield _indented(f"Capture: about {one['capture_ms'] / 1e3:.3g} s.")


def _keys(rows: list[dict[str, Any]], view: View) -> RenderableType:
    shown = rows
    if len(rows) > _ROWS and not view.verbose:
        most = sorted(rows, key=lambda row: -row["share"])[:_ROWS]
        shown = [row for row in rows if row in most]
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    names = ["key", "sizes", "steps", "padding", "replay ms", "eager ms"]
    memory = any(row["graph_bytes"] is not None for row in rows)
    for name in [*names, *(["memory"] if memory else []), ""]:
        table.add_column(name, justify="left" if name in ("sizes", "") else "right", overflow="fold", no_wrap=not name)
    largest = max((row["share"] for row in rows), default=0.0)
    for row in shown:
        cells = [str(row["key"]), row["serves"] or "never used", f"{row['share']:.1%}"]
        cells += ["" if row["padding_share"] is None else f"{row['padding_share']:.0%}"]
        cells += [f"{row['replay_ms']:.4g}", f"{row['eager_ms']:.4g}"]
        cells += [in_bytes(row["graph_bytes"]) if row["graph_bytes"] is not None else ""] if memory else []
        table.add_row(*cells, _bar(row["share"], largest))
    if len(shown) < len(rows):
        table.add_row("...", f"{len(rows) - len(shown)} more (--verbose)")
    return Padding(table, (0, 0, 0, 4))


def _better(one: dict[str, Any], view: View) -> Iterator[RenderableType]:
    better = one["better"]
    if better is None:
        return
    keys = [str(key) for key in better["keys"]]
    said = ", ".join(keys if len(keys) <= 24 or view.verbose else [*keys[:16], "...", *keys[-4:]])
    met = better["traffic"]
    saved = f"{better['saved']:.1%} less time, " if better["saved"] is not None else ""
    memory = f", {in_bytes(better['total_bytes'])}" if better["total_bytes"] is not None else ""
    exact = "" if better["exact"] else " (near the optimum)"
    yield _indented(
        f"Best list of {len(keys)} keys{exact}: {said}: {saved}padding {met['padding_share'] or 0:.1%}{memory}."
    )
    yield _curve(one["curve"])


def _curve(curve: list[dict[str, Any]]) -> RenderableType:
    """Time of the workload by the number of keys, against the least that any number reaches."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for name in ("keys", "time", ""):
        table.add_column(name, justify="left" if not name else "right")
    least, most = curve[-1]["ms"], curve[0]["ms"]
    for point in (p for i, p in enumerate(curve) if p["graphs"] in _CURVE or i == len(curve) - 1):
        over = point["ms"] / least - 1 if least else 0.0
        span = most / least - 1 if least else 0.0
        table.add_row(str(point["graphs"]), f"+{over:.1%}", _bar(over, span))
    return Padding(table, (0, 0, 0, 4))


def _simulation(found: dict[str, Any] | None) -> Iterator[RenderableType]:
    if found is None:
        return
    listed, control = found["listed"], found["every_size"]
    most = max(*listed["batches"], *control["batches"], 1)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for name in ("time", "batch", "", "with every size", ""):
        table.add_column(name, justify="left" if not name else "right")
    every = max(1, len(listed["batches"]) // 12)
    for i in range(0, len(listed["batches"]), every):
        a, b = listed["batches"][i], control["batches"][i]
        cells = (f"{i / len(listed['batches']):.0%}", str(a), _bar(a, most), str(b), _bar(b, most))
        table.add_row(*cells)
    end = "the load never recovers" if found["never_recovers"] else "the load recovers, or needs not to"
    end = end if found["whole"] else "too many steps to come to the end"
    yield _indented(f"Simulated {listed['seconds']:g} s: {end}; at the end {listed['waiting']} wait.")
    yield Padding(table, (0, 0, 0, 4))


def _bar(part: float, whole: float) -> str:
    return "#" * max(round(_BAR * part / whole), 1 if part else 0) if whole else ""


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))
