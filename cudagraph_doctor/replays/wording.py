"""From flags and trials to findings: the facts, the proof, the fix. Plain data in, plain data out, no torch."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity, how_shown
from cudagraph_doctor.path_names import own_name
from cudagraph_doctor.proof.ranges import graphs_too
from cudagraph_doctor.replays.content import HOLDS
from cudagraph_doctor.replays.model import Flag, History, Replay, Trial
from cudagraph_doctor.rules import RULES

_IN_MEMORY = (
    "Pass it in a device tensor of fixed address that is refreshed before each replay, or make it part of the key that "
    "graphs are looked up by."
)
_IN_PLACE = (
    "Write into the captured tensor in place (`{last}.copy_(new)`) instead of putting another one in its place, or "
    "capture again after the change."
)
_TOLD: dict[str, tuple[str, str]] = {
    "CGD301": (
        "`{name}` is never refreshed: the replay reads what was there before",
        "Copy this step's `{last}` into the captured buffer before each replay, in place (`buffer[:n].copy_({last})`).",
    ),
    "CGD302": (
        "`{name}` is refreshed only in part: not {where}",
        "Copy all of `{last}` before each replay, not just the part that was refreshed.",
    ),
    "CGD303": (
        "`{name}` keeps the values of an earlier step in its {where}",
        "Reset the rows of `{last}` beyond the live batch before each replay: the graph runs over the whole bucket.",
    ),
    "CGD304": (
        "`{name}` is filled elsewhere than the graph reads: {where}",
        "Fill the rows of `{last}` that the captured step slices, or slice the ones that are filled.",
    ),
    "CGD305": (
        "`{name}` is in other memory by now than graph {key} captured, with other values",
        _IN_PLACE,
    ),
    "CGD306": (
        "graph {key} reads memory that was somebody else's when it was captured, and is `{name}`'s by now ({where})",
        "Keep what a graph reads alive as long as the graph is: hold a reference to the tensor.",
    ),
    "CGD307": (
        "graph {key} reads memory that is freed ({where})",
        "Keep what a graph reads alive as long as the graph is: hold a reference to the tensor.",
    ),
    "CGD308": (
        "the weight `{name}` is another tensor by now than the one that graph {key} captured",
        _IN_PLACE,
    ),
    "CGD309": (
        "`{name}` addresses live state from its {where}",
        "Fill the padding rows of `{last}` with a value that no live row owns: -1 where the kernel skips it, or a row "
        "reserved for padding.",
    ),
    "CGD310": (
        "`{name}` holds a value in its {where} that live rows suffer from",
        "Fill the padding rows of `{last}` with a value that the step can work with.",
    ),
    "CGD311": (
        "the pinned buffer `{name}` is rewritten before the copy out of it has run",
        "Wait for an event recorded behind the copy before the buffer is written again, or use two buffers in turn.",
    ),
    "CGD312": (
        "`{name}` is read on the host before the copy into it has run",
        "Wait for an event recorded behind the copy before the host looks.",
    ),
    "CGD313": (
        "`{name}` is an output of a graph, still in use when a later replay overwrites it",
        "Clone what is kept over a replay (`{last} = output.clone()`).",
    ),
    "CGD314": (
        "`{name}` is an output of a graph, and overwritten by a later graph of the step before it is read",
        "Capture graphs whose outputs live side by side into pools of their own, or copy the output before the other "
        "graph is replayed.",
    ),
    "CGD315": (
        "the random state does not advance: every replay draws the same numbers",
        "Seed once, in reset() or at start-up, not before each replay; register generators of your own on the graph.",
    ),
    "CGD316": (
        "`{name}` is staged only if a step has it: a step without it reads that of an earlier one",
        "Where `{last}` is absent, write the value that means nothing (zeros, say) into its buffer.",
    ),
    "CGD317": (
        "`{name}` is set in the capture and read outside of it: a replay sets no attribute, so it leads to the graph "
        "that was captured last",
        "Return it as an output of the graph, and read that.",
    ),
    "CGD318": (
        "the buffer of `{name}` holds what `{instead}` should hold{swapped}",
        "Copy this step's `{last}` into the captured buffer of `{last}`: by now `{instead}` is copied there.",
    ),
    "CGD320": ("{names} was baked into graph {key} by value", _IN_MEMORY),
    "CGD321": (
        "{names} was baked into graph {key}: opaque bytes, as of a descriptor made on the host",
        "Make the descriptor for the whole bucket, or refresh it on the device; else make what it describes part of "
        "the key.",
    ),
    "CGD322": (
        "the launch of {names} has the size that the step of the capture needed",
        "Launch for the largest step that the graph serves, and let the kernel leave early; or make the size part of "
        "the key.",
    ),
    "CGD323": (
        "a capture of this step launches other work than graph {key}: {where}",
        "A branch taken on the CPU was frozen at capture: decide on the device (torch.where), or make what it depends "
        "on part of the key.",
    ),
    "CGD324": (
        "{names} in graph {key} is a number that the host counts or draws: replays repeat that of the capture",
        "Count or draw on the device, or pass the number in a device tensor that is refreshed before each replay.",
    ),
    "CGD325": (
        "graph {key} serves steps whose captures differ: {names} is baked in and not in the key",
        "Make it part of the key that graphs are looked up by, or pass it in a device tensor of fixed address.",
    ),
    "CGD326": (
        "graph {key} reads memory of its pool that it has not written: {name}",
        "Initialise the workspace inside the step (`torch.zeros`, `zero_()`), or write all that is read.",
    ),
}
"""Code -> what is wrong, what to do."""
_FILLED_OTHERWISE = (
    "`{name}` is filled before each replay, and not with this step's values",
    "See what is copied into the captured buffer before each replay: it has to be this step's `{last}`.",
)
"""The same of CGD301 where what replays found there was never the same twice."""
_HARMLESS = ("CGD322", "CGD323")
"""Differences between captures that are worth a note where they do no harm."""


def findings(history: History) -> list[Finding]:
    """What was shown, in the order of the flags. Flags without harm are left out, but for other launches: a note."""
    found = []
    for position, flag in enumerate(history.flags):
        trial = next((t for t in history.trials if position in t.flags and t.healed), None)
        replay = None if flag.replay is None else history.replays[flag.replay]
        proof = Proof.CONFIRMED if trial else Proof.MEASURED
        shown = trial is not None or (replay is not None and replay.harmed and "cause" in flag.evidence)
        if shown:
            found.append(_finding(history, flag, replay, trial, proof, RULES[flag.code].severity))
        elif flag.code in _HARMLESS and flag.evidence.get("harmless"):
            found.append(_finding(history, flag, replay, None, Proof.MEASURED, Severity.NOTE))
    return found


def _finding(
    history: History, flag: Flag, replay: Replay | None, trial: Trial | None, proof: Proof, severity: Severity
) -> Finding:
    names = [f"`{name}`" for name in flag.evidence.get("names", [flag.name])]
    key = replay.key if replay else str(flag.evidence.get("key", ""))
    words = {
        "name": flag.name,
        "names": ", ".join(names),
        "last": own_name(flag.name),
        "where": flag.where or "all of it",
        "key": key,
        "instead": flag.evidence.get(HOLDS, ""),
        "swapped": _swapped(flag),
    }
    what, fix = _FILLED_OTHERWISE if _is_filled_otherwise(flag) else _TOLD[flag.code]
    both = ""
    if (flag.kind in ("parameter", "launch") and flag.expected) or (_is_left_out(flag) and flag.expected is not None):
        both = f" ({flag.held} in the graph, {flag.expected} in one captured now)"
    message = f"{_capitalised(what.format(**words))}{both}."
    if severity is Severity.NOTE:
        message += " It does no harm at any step looked at."
    elif replay is not None:
        message += f" {_effect(replay)}."
    if trial is not None:
        message += f" {_capitalised(_healed(flag, trial, names))}."
    elif (vain := _in_vain(history, flag)) is not None:
        message += (
            f" Writing {vain.bytes} bytes of {', '.join(names)} into the memory that the graph reads changes the "
            "result without healing it: something else is wrong besides."
        )
    message += graphs_too(flag.evidence.get("also_in", ()))
    return Finding(
        flag.code,
        message,
        severity,
        proof,
        fix.format(**words) if severity is not Severity.NOTE else "Nothing to do.",
        culprit=Culprit(flag.kind or "unnamed", flag.name, flag.where, flag.held, flag.expected),
        location=flag.location,
        related=flag.related,
        step=replay.step if replay else None,
        key=key,
        backend=history.run.backend,
        evidence={
            **flag.evidence,
            **({"effect": _difference(replay)} if replay else {}),
            **(how_shown(_healed(flag, trial, names)) if trial else {}),
        },
    )


def _is_filled_otherwise(flag: Flag) -> bool:
    """Whether it was something else at each replay, rather than what was there before."""
    changed = flag.evidence.get("changed_at", 0)
    return flag.code == "CGD301" and 0 < changed >= flag.evidence["replays"] - 1


def _is_left_out(flag: Flag) -> bool:
    """Whether it is a host value that staging leaves out, rather than a parameter that it came to be."""
    return flag.code == "CGD320" and flag.kind == "input"


def _swapped(flag: Flag) -> str:
    """In words, that the other input's buffer was mended as well, since it holds what this one should hold."""
    instead = flag.evidence.get(HOLDS)
    if instead is None or instead not in flag.evidence.get("names", ()):
        return ""
    return f", and that of `{instead}` what `{flag.name}` should hold: the two are swapped"


def _in_vain(history: History, flag: Flag) -> Trial | None:
    """What was tried on the flag's tensor and did not heal."""
    position = history.flags.index(flag)
    return next((trial for trial in history.trials if position in trial.flags and not trial.healed), None)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _difference(replay: Replay) -> str:
    return replay.against_eager.difference or (replay.against_fresh.difference if replay.against_fresh else "")


def _effect(replay: Replay) -> str:
    """ "Step 3, 4 rows: differs from eager in 2 of 2 replays, eager from itself in 0 of 2: logits: ..." """
    shown = replay.against_eager
    if not shown.of:
        return f"Step {replay.step}, {_rows(replay.rows)}"
    if not shown.differs and replay.harm_step is not None:
        told = f"leaves other state than eager, and the output at position {replay.harm_step} of the plan follows"
    else:
        told = f"differs from eager in {shown.differs} of {shown.of} replays"
    control = f"eager from itself in {shown.control} of {shown.control_of}"
    return f"Step {replay.step}, {_rows(replay.rows)}: {told}, {control}: {shown.difference}"


def _rows(rows: int) -> str:
    return f"{rows} row" + ("" if rows == 1 else "s")


def _healed(flag: Flag, trial: Trial, names: Sequence[str]) -> str:
    told = ", ".join(names)
    if flag.evidence.get("forced"):
        return f"its {trial.bytes} bytes, put into a graph captured now, make that one as wrong, bit for bit"
    match flag.code:
        case "CGD309":
            return f"healed by giving {told} ({flag.where}) a live row's value: that state is left alone then"
        case "CGD310":
            return f"healed by giving {told} ({flag.where}) a live row's value"
        case "CGD306" | "CGD307":
            return f"zeros in these {trial.bytes} bytes, right before the replay, change its result"
        case "CGD311":
            return f"healed by a buffer of its own for each copy out of {told}, on a device that is slowed down"
        case "CGD312":
            return f"healed by waiting for the copies into {told} alone, on a device that is slowed down"
        case "CGD313" | "CGD314":
            return f"healed by giving {told} memory of its own before that replay"
        case "CGD315":
            return "healed by the random state that the eager step starts from"
        case "CGD317":
            return f"healed by letting {told} lead to this graph's own memory"
        case "CGD320" if _is_left_out(flag):
            return f"healed by capturing the graph with {told} as this step has it"
        case "CGD326":
            return "healed by zeros in that memory"
    verb = "setting" if flag.kind in ("parameter", "launch") else "writing"
    return f"healed by {verb} {trial.bytes} bytes of {told}" + (f" ({flag.where})" if flag.where else "")
