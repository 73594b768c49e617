"""`inputs`: what did each replay read, what should it have read, and which per-step value stayed frozen?

Reads downwards: plan, find the state, capture; `replays.collect` watches what replays read; `proof.steps` runs the same
steps unobserved, judges and diagnoses them; `replays.recapture` dumps captures of the same steps, made again and again.
Judged are plain data (`replays.content`, `replays.baked`), and `replays.wording` turns what was shown into findings.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cudagraph_doctor import blame
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.findings import Finding, Outcome, Status
from cudagraph_doctor.graph.backend import Backend, ListenerError
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.free_run import free_run_findings
from cudagraph_doctor.proof.ranges import numbered
from cudagraph_doctor.proof.start import discover, planned, subject_of, without_graph
from cudagraph_doctor.proof.steps import Steps
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays import baked, content, told_elsewhere
from cudagraph_doctor.replays.accuse import Accused, accuse, measured
from cudagraph_doctor.replays.collect import Watched, Watcher
from cudagraph_doctor.replays.handover import handover_findings
from cudagraph_doctor.replays.judging import CHECK, CODES, judged, outcome
from cudagraph_doctor.replays.model import Dump, History, Replay, Run
from cudagraph_doctor.replays.plain import to_plain
from cudagraph_doctor.replays.poison import survey
from cudagraph_doctor.replays.recapture import captures, chosen, interleaved
from cudagraph_doctor.replays.suspects import Suspects
from cudagraph_doctor.replays.wording import findings
from cudagraph_doctor.settings import Settings

NAME = CHECK
RULES = CODES
NEEDS = frozenset({"target"})

_RUNS = 7
"""Runs of a clean step: five that are judged, one that is watched, and one more of a graph captured now."""
_TIMES = 3
"""Captures of each step, at least, that are compared with nothing changed. With two, bytes that nobody set look like
values."""
_KEYS = 3
"""Keys whose captures are compared."""


def run(target: Any, backend: Backend, settings: Settings, progress: Progress) -> Outcome:
    """Look at what the target's replays read.

    Args:
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in since before the target's module was imported.
        settings: steps, buckets, batch sizes, how often steps are captured again; with `poison`, inputs are poisoned
            and nothing is judged: the outcome has what was seen as `checked["survey"]`.
        progress: told what is done.

    Raises:
        UsageError: memory that is shared with peers would be poisoned.
        DoctorError: the target does not keep the contract, or cannot be compared.
    """
    if settings.poison:
        seen = survey(target, backend, settings, progress)
        return Outcome(NAME, Status.PASSED, checked={"survey": to_plain(seen)}, rules=RULES)
    return _Inputs(target, backend, settings, progress).outcome()


class _Inputs:
    def __init__(self, target: Any, backend: Backend, settings: Settings, progress: Progress) -> None:
        self.subject = subject_of(target, backend)
        self.backend = backend
        self.settings = settings
        self.progress = progress
        self.arms = Arms(self.subject, backend, lambda at: self.danger.watch(at))
        self.danger = Danger(self.arms, target, progress)

    @torch.no_grad()  # as in `eager_diff`
    def outcome(self) -> Outcome:
        """Everything, in order."""
        plan, served = planned(self.subject, self.settings)
        steps = Steps(self.subject, self.arms, self.danger, self.settings, Suspects(self.arms, served))
        watched = Watched()
        try:
            discover(self.arms, served, self.progress, _RUNS, self.settings.tolerances)
            self.progress.stage("what replays read", len(served))
            self.progress.stage("copies", 1)
            early = handover_findings(self.arms, served, self.progress)
            if early:  # what is read hangs on the clock: nothing else can be told before this is mended
                return self._of_order(early, plan, served)
            watched = Watcher(self.arms, self.subject.target).watch(served)
            if unseen := len(served) - len(watched.replays):
                self.subject.not_checked.append(
                    f"what replays read at {unseen} of {len(served)} steps: they replay no graph, or one captured "
                    "outside of a step and of recapture(), as in reset(), where names are not taken down"
                )
            self.progress.stage("steps", len(served))
            self.arms.begin(served)
            for at in served:
                self.progress.advance(f"step {at.step}, {at.in_rows}, graph {at.key}")
                steps.play(at)
            extra = [] if steps.cases else self._free_run(served)
            dumps = self._dumps(served, [case.at for case in steps.cases])
        except (DoctorError, ListenerError):
            raise
        except Exception as error:
            danger = self.danger.finding
            if danger is None or blame.is_out_of_memory(error):
                raise
            return self._failed(plan, danger, error)
        steps.played += without_graph(plan)
        history = self._judged(watched, steps, dumps, extra)
        if self.settings.history:
            Path(self.settings.history).write_text(json.dumps(to_plain(history)), encoding="utf-8")
        return outcome(history, findings(history), steps.played, self.arms.runs)

    def _free_run(self, served: list[Planned]) -> list[Finding]:
        self.progress.stage("free running", 1)
        return free_run_findings(self.arms, served, self.progress, self.settings.values)

    def _dumps(self, served: list[Planned], bad: list[Planned]) -> list[Dump]:
        """Last, since an engine's graphs are replaced by it."""
        if not self.subject.can_recapture:
            return []
        leading = served if self.arms.found.host_moves else ()
        engine = self.subject.form == "engine"
        steps = chosen(served, 1 if engine else _KEYS, bad)
        keys = {at.key for at in served} - {at.key for at in steps}
        if keys:
            self.subject.not_checked.append(f"what captures bake in for {len(keys)} further keys")
        asked = interleaved(steps, max(_TIMES, -(-self.settings.recaptures // len(steps))), leading)
        self.progress.stage("captures compared", len(asked))
        try:
            return captures(self.arms, asked)
        except Inconclusive as reason:
            self.subject.not_checked.append(f"what captures bake in: {reason.what}")
            return []

    def _judged(self, watched: Watched, steps: Steps, dumps: list[Dump], extra: list[Finding]) -> History:
        cases = {case.at.index: case for case in steps.cases}
        replays = [measured(r, cases[r.index]) if r.index in cases else r for r in watched.replays]
        history = History(
            self._about(),
            tuple(watched.graphs.values()),
            tuple(watched.regions.values()),
            tuple(replays),
            tuple(watched.readings),
            tuple(dumps),
            not_checked=(),
            counts={
                "graphs": self.arms.found.graphs_replayed,
                "regions": len(watched.regions),
                "unnamed": len(watched.unnamed),
                "addresses": watched.pointers,
                "unreadable nodes": sum(sum(graph.not_read.values()) for graph in watched.graphs.values()),
            },
        )
        captured = baked.judge(dumps)
        history = replace(history, flags=tuple(content.judge(history)))
        own_keys = self.subject.form == "engine"
        lost = frozenset(str(one.at.key) for one in watched.lost)
        accused = accuse(history, steps.cases, captured, own_keys, self.settings.values, lost)
        told_elsewhere.add(accused, extra, history)
        for case in accused.unexplained:
            if str(case.at.key) in lost:
                self.subject.not_checked.append(
                    f"what else is wrong at step {case.at.step} ({case.at.in_rows}), as long as graph {case.at.key} "
                    "reads memory whose owner is gone"
                )
        told_elsewhere.add_lost(accused, watched.lost, history)
        for case in accused.unexplained:
            self.subject.not_checked.append(
                f"why step {case.at.step} ({case.at.in_rows}, graph {case.at.key}) differs from eager "
                f"({case.record.replayed}): nothing that was tried heals it; see `diff`"
            )
        unread = sorted(graph.ordinal for graph in watched.graphs.values() if not graph.nodes and graph.not_read)
        if unread:
            self.subject.not_checked.append(f"what {numbered('graph', unread)} read: gone when it was looked at")
        not_checked = tuple(dict.fromkeys([*self.subject.not_checked, *self.backend.not_checked()]))
        counts = {**history.counts, "captures compared": len(dumps), "noise bytes": captured.noise_bytes}
        history = replace(history, trials=tuple(accused.trials), not_checked=not_checked, counts=counts)
        return judged(history, accused.flags, captured)

    def _failed(self, plan: list[Planned], danger: Finding, error: Exception) -> Outcome:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        finding = replace(danger, message=f"{danger.message} It raised {what}", evidence={**danger.evidence})
        self.subject.not_checked.append("what comes after the replay that failed")
        empty = History(self._about(), not_checked=tuple(self.subject.not_checked))
        return outcome(empty, [finding], without_graph(plan), self.arms.runs)

    def _of_order(self, early: list[Finding], plan: list[Planned], served: list[Planned]) -> Outcome:
        names = ", ".join(f"`{finding.culprit.name}`" for finding in early if finding.culprit)
        self.subject.not_checked.append(f"what replays read, as long as {names} is handed over too early")
        replays = tuple(Replay(at.index, at.step, at.rows, str(at.key), ()) for at in served)
        counts = {"graphs": self.arms.found.graphs_replayed}
        history = History(self._about(), replays=replays, not_checked=tuple(self.subject.not_checked), counts=counts)
        accused = Accused()
        told_elsewhere.add(accused, early, history)
        history = replace(history, flags=tuple(accused.flags), trials=tuple(accused.trials))
        return outcome(history, findings(history), without_graph(plan), self.arms.runs)

    def _about(self) -> Run:
        settings = self.settings
        return Run(
            settings.spec,
            self.subject.form,
            self.backend.name,
            torch.__version__,
            torch.cuda.get_device_name() if self.backend.name == "cuda" else "",
            settings.seed,
            settings.target_args,
            settings.fault + (" (twin)" if settings.twin else ""),
        )


__all__ = ["NAME", "NEEDS", "RULES", "run"]
