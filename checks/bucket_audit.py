"""`audit`: will these keys carry this traffic? From configurations, a workload and costs; no torch, no GPU.

Reads downwards: `run` reads what the job names (`audit/engines`, `audit/logs`, `traces/`), `judge` is plain Python on
what was read. `run_on_target` measures the costs first, in the child process of `audit --target` (`measuring/`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cudagraph_doctor.audit import gates, judged, logs, simulate, summary, wording, workload
from cudagraph_doctor.audit.costs import Costs
from cudagraph_doctor.audit.engines import load
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.job import Job
from cudagraph_doctor.audit.judged import Audit, JudgedSet
from cudagraph_doctor.audit.keys import Configuration
from cudagraph_doctor.audit.simulate import Comparison
from cudagraph_doctor.audit.traffic import Met
from cudagraph_doctor.audit.workload import Workload
from cudagraph_doctor.findings import Finding, Outcome, Severity, Status
from cudagraph_doctor.measuring import wording as measured
from cudagraph_doctor.misses.gates import Gate
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.traces import labels
from cudagraph_doctor.traces.read import read as read_trace

if TYPE_CHECKING:
    from cudagraph_doctor.graph.backend import Backend
    from cudagraph_doctor.settings import Settings

NAME = "audit"
RULES = (*wording.RULES, *measured.RULES)
NEEDS = frozenset({"configuration"})

Configurations = Sequence[tuple[Configuration, Sequence[Configuration]]]


def run(job: Job, progress: Progress) -> tuple[Audit, Outcome]:
    """Audit the keys of a job; what was judged, and the outcome of it.

    Raises:
        UsageError: a configuration, a workload or an option is none.
        Inconclusive: a trace tells no batch, or no list fits the budget.
    """
    started = time.perf_counter()
    configurations = _configurations(job)
    progress.stage("reading the workload", 0)
    traffic, comparison = _workload(job, configurations[0][0])
    audit = judged.judge(
        configurations,
        traffic or workload.assumed(max(keys.most for keys in configurations[0][0].sets)),
        job.costs,
        job.demands,
        assumed=traffic is None,
        comparison=comparison,
    )
    return audit, judge(audit, time.perf_counter() - started)


def run_on_target(target: Any, backend: Backend, settings: Settings, progress: Progress) -> Outcome:
    """Measure the keys of a target: what `run` goes on with. Raises DoctorError where it cannot be measured."""
    from cudagraph_doctor.measuring.measure import measure  # only here: it needs torch

    return measure(target, backend, settings, progress)


def _configurations(job: Job) -> Configurations:
    asked = Asked(job.rule, job.max_batch)
    found = []
    for source in job.sources:
        made = load.of_options(source.where, source.options, job.engine, asked)
        found.append((made, load.under_other_rules(source.where, source.options, made, asked)))
    return found


def _workload(job: Job, configuration: Configuration) -> tuple[Workload | None, Comparison | None]:
    if job.workload is not None:
        return logs.read(job.workload, logs.Columns(job.column, job.weight, job.unit)), None
    if job.traces:
        own = labels.user_family(job.step_pattern) if job.step_pattern else None
        return workload.of_traces([read_trace(path, own) for path in job.traces]), None
    if job.arrivals is not None:
        return _simulated(job.arrivals, configuration, job.costs)
    return None, None


def _simulated(arrivals: simulate.Arrivals, configuration: Configuration, costs: Costs) -> tuple[Workload, Comparison]:
    compared = simulate.compare(arrivals, configuration.sets[0], costs)
    steps = {batch: float(count) for batch, count in sorted(compared.listed.steps.items())}
    return workload.of_arrivals(steps, arrivals.rate, arrivals.output_length, compared.listed.seconds), compared


def judge(audit: Audit, seconds: float = 0.0) -> Outcome:
    """The outcome of what was judged: pure."""
    demanded = gates.check(audit)
    findings = wording.findings(audit, demanded)
    status, reason, fix = _status(audit, demanded, findings)
    return Outcome(
        check=NAME,
        status=status,
        reason=reason,
        fix=fix,
        not_checked=_not_checked(audit, demanded),
        checked={
            "configurations": len(audit.configurations),
            "graphs": sum(keys.graphs for keys in audit.configurations[0].sets),
            "summary": summary.summarize(audit),
            "gates": [{"option": gate.option, "met": gate.met, "message": gate.message} for gate in demanded],
        },
        findings=tuple(findings),
        rules=wording.RULES,
        seconds=seconds,
    )


def _status(audit: Audit, demanded: Sequence[Gate], findings: Sequence[Finding]) -> tuple[Status, str, str]:
    for one in audit.judged[0].sets:
        above = _above(one)
        if above and len(above) == len(one.traffic.met):
            return (
                Status.INCONCLUSIVE,
                f"Every step of the workload has more than the {one.keys.most} requests that are declared as the most.",
                "Declare the most that the engine takes (--max-batch, max_num_seqs), or give this engine's workload.",
            )
    for gate in demanded:
        if gate.met is None:
            return Status.INCONCLUSIVE, f"{gate.option} cannot be answered: {gate.message}", gate.fix
    spoken = any(finding.severity is not Severity.NOTE for finding in findings)
    return (Status.FOUND if spoken else Status.PASSED), "", ""


def _above(one: JudgedSet) -> list[Met]:
    """What the workload has of batches beyond the declared most."""
    return [met for met in one.traffic.met if met.size > one.keys.size(one.keys.most)]


def _not_checked(audit: Audit, demanded: Sequence[Gate]) -> tuple[str, ...]:
    said: list[str] = []
    for configuration in audit.configurations:
        where = f"{configuration.source}: " if len(audit.configurations) > 1 else ""
        said += [where + sentence for sentence in configuration.unknown]
        if configuration.rule_assumed and configuration.rule:
            told = [one.elsewhere for one in audit.judged if one.configuration.sets == configuration.sets]
            others = f"; {'; '.join(told[0])}" if told and told[0] else ""
            said.append(f"{where}which version runs: {configuration.rule} is assumed, name yours with --rule{others}")
        if configuration.unread:
            shown = ", ".join(configuration.unread[:6]) + (", ..." if len(configuration.unread) > 6 else "")
            said.append(f"{where}options that say nothing about keys: {shown}")
    if audit.assumed:
        said.append("hit rate and padding of your traffic: give --workload, --from-trace or --arrivals")
    if not audit.costs.measured:
        said.append(f"times, which are {audit.costs.origin}; give --costs for yours")
    said += audit.workload.not_used
    if audit.comparison and not audit.comparison.whole:
        said.append(f"whether the load recovers: too many steps after {audit.comparison.listed.seconds:.3g} s")
    for one in audit.judged[0].sets:
        if above := _above(one):
            share = sum(met.steps for met in above) / one.traffic.steps
            said.append(
                f"whether {one.keys.most} requests are the most: {share:.1%} of the workload's steps have more "
                f"(up to {above[-1].size} {one.keys.unit.value})"
            )
        if one.keys.adapters:
            said.append("how many adapters the steps of the workload have: no log tells")
        if one.memory is None and not audit.configurations[0].turned_off:
            said.append("memory of the graphs: give --costs with graph_bytes")
    said += [f"{gate.option}: {gate.message}" for gate in demanded if gate.met is None]
    return tuple(dict.fromkeys(said))
