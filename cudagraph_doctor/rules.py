"""The table of rules: one row a code, one page each in `docs/rules/CODE.md`. Plain data, no torch.

A code is never reused or renumbered; the hundreds are the check (0 the run itself, 1 diff, 2 capture, 3 inputs, 4
buckets, 5 audit, 6 races). The name names the problem and reads well after "allow".
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass

from cudagraph_doctor.findings import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    code: str
    name: str
    summary: str
    severity: Severity
    """Default severity of its findings."""
    check: str
    """The check that emits it; "run" for CGD0xx."""
    since: str = "0.1.0"


def _rule(code: str, name: str, severity: Severity, check: str, summary: str) -> Rule:
    return Rule(code, name, summary, severity, check)


_ALL = (
    _rule(
        "CGD001",
        "eager-not-reproducible",
        Severity.NOTE,
        "run",
        "The same eager step, run twice from the same state, gives different results.",
    ),
    _rule(
        "CGD002",
        "incomplete-reset",
        Severity.NOTE,
        "run",
        "reset() does not bring host or device state back to before step 0.",
    ),
    _rule(
        "CGD003",
        "replay-fails",
        Severity.ERROR,
        "run",
        "A replay fails, or takes the process with it, where the same step runs eagerly.",
    ),
    _rule(
        "CGD101",
        "frozen-in-graph",
        Severity.ERROR,
        "diff",
        "A graph captured now gives the eager result, the graph captured earlier does not: something in it is frozen.",
    ),
    _rule(
        "CGD102",
        "graph-differs-from-eager",
        Severity.ERROR,
        "diff",
        "Even a graph captured now differs from eager: staging, missing work, or a branch taken only in capture.",
    ),
    _rule("CGD103", "unsafe-padding", Severity.ERROR, "diff", "Padding rows change live rows or live state."),
    _rule(
        "CGD104",
        "kept-output-overwritten",
        Severity.ERROR,
        "diff",
        "An output that is still in use is overwritten by a later replay.",
    ),
    _rule(
        "CGD105",
        "unordered-steps",
        Severity.ERROR,
        "diff",
        "Steps are right one at a time and wrong when they overlap: an ordering edge between steps is missing.",
    ),
    _rule(
        "CGD106",
        "replay-not-reproducible",
        Severity.ERROR,
        "diff",
        "Eager repeats bit for bit, replays of one graph on the same inputs do not.",
    ),
    _rule(
        "CGD107",
        "graph-numerics",
        Severity.NOTE,
        "diff",
        "Graph and eager differ by rounding only: another kernel, split or fusion.",
    ),
    _rule(
        "CGD201",
        "host-read-in-capture",
        Severity.ERROR,
        "capture",
        "The host reads a value off the device while a capture is open: .item(), .tolist(), .cpu(), bool(), print().",
    ),
    _rule(
        "CGD202",
        "shape-from-values",
        Severity.ERROR,
        "capture",
        "An operator in the capture has an output whose shape depends on values: boolean mask, nonzero, unique.",
    ),
    _rule(
        "CGD203",
        "pageable-or-blocking-copy",
        Severity.ERROR,
        "capture",
        "A copy between host and device in the capture is pageable, or makes the host wait.",
    ),
    _rule(
        "CGD204",
        "synchronisation-in-capture",
        Severity.ERROR,
        "capture",
        "The device, a stream or an event is waited for by the host while a capture is open.",
    ),
    _rule(
        "CGD205",
        "query-in-capture",
        Severity.ERROR,
        "capture",
        "A stream or an event is asked whether it is done while a capture is open.",
    ),
    _rule(
        "CGD206",
        "generator-in-capture",
        Severity.ERROR,
        "capture",
        "A generator is seeded, read or set in a capture, or drawn from without being registered on the graph.",
    ),
    _rule(
        "CGD207",
        "allocation-in-capture",
        Severity.ERROR,
        "capture",
        "Memory is allocated or freed in a capture behind the back of torch's caching allocator.",
    ),
    _rule(
        "CGD208",
        "unjoined-fork",
        Severity.ERROR,
        "capture",
        "A side stream is forked off the capture and never joined back.",
    ),
    _rule(
        "CGD209",
        "dependency-on-uncaptured-work",
        Severity.ERROR,
        "capture",
        "The capture is made to wait for work outside of it: an event from before, or the legacy default stream.",
    ),
    _rule(
        "CGD210",
        "nested-capture",
        Severity.ERROR,
        "capture",
        "A capture is opened, or a graph is replayed, while another capture is open.",
    ),
    _rule(
        "CGD211",
        "other-thread-in-capture",
        Severity.ERROR,
        "capture",
        'Another thread makes a call that a capture in mode "global" forbids.',
    ),
    _rule(
        "CGD212",
        "graph-destroyed-in-capture",
        Severity.ERROR,
        "capture",
        "An older graph is destroyed while a capture is open, by the garbage collector or by hand.",
    ),
    _rule(
        "CGD213",
        "warm-up-missing",
        Severity.ERROR,
        "capture",
        "Something is done for the first time inside the capture: a library starts, code is compiled or tuned.",
    ),
    _rule(
        "CGD214",
        "work-outside-capture",
        Severity.ERROR,
        "capture",
        "While a capture is open, work goes to a stream that is not captured: the graph lacks it.",
    ),
    _rule("CGD215", "empty-graph", Severity.ERROR, "capture", "The capture succeeds and holds nothing."),
    _rule(
        "CGD216",
        "host-source-dies",
        Severity.ERROR,
        "capture",
        "The graph copies from host memory that nobody keeps alive.",
    ),
    _rule(
        "CGD217",
        "attribute-written-in-capture",
        Severity.WARNING,
        "capture",
        "Python code in the step writes a value that replays do not write, and that is read outside of the graph.",
    ),
    _rule(
        "CGD218",
        "library-call-in-capture",
        Severity.ERROR,
        "capture",
        "A library makes a CUDA call that a capture forbids.",
    ),
    _rule(
        "CGD219",
        "unexplained-refusal",
        Severity.ERROR,
        "capture",
        "The capture is refused, and nothing that was watched explains it.",
    ),
    _rule(
        "CGD220",
        "left-out-of-capture",
        Severity.ERROR,
        "capture",
        "The step leaves work out because it is told that it is captured, and replays give other results without it.",
    ),
    _rule(
        "CGD221",
        "autocast-cache-across-capture",
        Severity.ERROR,
        "capture",
        "A graph reads weights that autocast cast outside of it, and keeps only until it is left.",
    ),
    _rule(
        "CGD301",
        "input-never-refreshed",
        Severity.ERROR,
        "inputs",
        "An input that changes from step to step is never written: replays read what was there before.",
    ),
    _rule(
        "CGD302",
        "input-refreshed-in-part",
        Severity.ERROR,
        "inputs",
        "Some rows or columns of an input are refreshed before a replay, others that change are not.",
    ),
    _rule(
        "CGD303",
        "stale-padding-rows",
        Severity.ERROR,
        "inputs",
        "Padding rows keep the values of an earlier step, and live rows or live state suffer from it.",
    ),
    _rule(
        "CGD304",
        "wrong-slice-refreshed",
        Severity.ERROR,
        "inputs",
        "A buffer is filled at one end, and the graph reads the other.",
    ),
    _rule(
        "CGD305",
        "input-rebound",
        Severity.ERROR,
        "inputs",
        "A captured tensor's name leads to other memory by now; the graph reads what was left behind.",
    ),
    _rule(
        "CGD306",
        "captured-memory-reused",
        Severity.ERROR,
        "inputs",
        "Memory that a graph reads was freed and is another tensor's by now.",
    ),
    _rule("CGD307", "captured-memory-freed", Severity.ERROR, "inputs", "Memory that a graph reads is freed."),
    _rule(
        "CGD308",
        "weights-replaced",
        Severity.ERROR,
        "inputs",
        "A weight, or what was derived from it, is another tensor by now than the one captured.",
    ),
    _rule(
        "CGD309",
        "padding-aliases-live-slot",
        Severity.ERROR,
        "inputs",
        "Padding rows address state that live rows own.",
    ),
    _rule(
        "CGD310",
        "unsafe-padding-values",
        Severity.ERROR,
        "inputs",
        "Padding rows hold values that spread to live rows, as a division by zero does.",
    ),
    _rule(
        "CGD311",
        "pinned-buffer-rewritten",
        Severity.ERROR,
        "inputs",
        "A pinned host buffer is rewritten before the copy out of it has run.",
    ),
    _rule(
        "CGD312",
        "host-read-too-early",
        Severity.ERROR,
        "inputs",
        "The host reads what a copy behind the replay has not brought yet.",
    ),
    _rule(
        "CGD313",
        "output-kept-and-overwritten",
        Severity.ERROR,
        "inputs",
        "A graph's output is overwritten while its caller still reads it.",
    ),
    _rule(
        "CGD314",
        "outputs-share-a-pool",
        Severity.ERROR,
        "inputs",
        "A graph overwrites the live output of another one of its pool.",
    ),
    _rule(
        "CGD315",
        "random-state-frozen",
        Severity.ERROR,
        "inputs",
        "The random state does not advance: every replay draws the same numbers.",
    ),
    _rule(
        "CGD316",
        "optional-input-skipped",
        Severity.ERROR,
        "inputs",
        "An input that some steps lack is not written then: they read that of an earlier step.",
    ),
    _rule(
        "CGD317",
        "attribute-set-in-capture",
        Severity.ERROR,
        "inputs",
        "An attribute is set in the captured code and read outside of it: a replay sets nothing.",
    ),
    _rule(
        "CGD318",
        "inputs-mixed-up",
        Severity.ERROR,
        "inputs",
        "The buffer of one input is filled with the values of another.",
    ),
    _rule(
        "CGD320",
        "baked-by-value",
        Severity.ERROR,
        "inputs",
        "A number that changes from step to step was passed to a kernel by value at capture.",
    ),
    _rule(
        "CGD321",
        "baked-opaque-bytes",
        Severity.ERROR,
        "inputs",
        "A descriptor or other opaque bytes that change from step to step were passed by value at capture.",
    ),
    _rule(
        "CGD322",
        "baked-launch-size",
        Severity.ERROR,
        "inputs",
        "A kernel's grid, block or shared memory depends on the step that was captured.",
    ),
    _rule(
        "CGD323",
        "baked-branch",
        Severity.ERROR,
        "inputs",
        "Captures of other steps launch another kernel, or more or fewer.",
    ),
    _rule(
        "CGD324",
        "baked-host-counter",
        Severity.ERROR,
        "inputs",
        "A number that the host counts up or draws is repeated by every replay.",
    ),
    _rule("CGD325", "key-too-weak", Severity.ERROR, "inputs", "One key serves inputs whose captures differ."),
    _rule(
        "CGD326",
        "uninitialised-read",
        Severity.ERROR,
        "inputs",
        "A graph reads memory of its pool that it has not written.",
    ),
    _rule(
        "CGD400",
        "unmet-gate",
        Severity.ERROR,
        "buckets",
        "A trace does not meet what was demanded: hit rate, eager steps, padding, kind of replay, an older run.",
    ),
    _rule(
        "CGD401",
        "batch-above-largest-bucket",
        Severity.WARNING,
        "buckets",
        "Decode steps run eager because their batch is larger than the largest bucket.",
    ),
    _rule(
        "CGD402",
        "hole-in-buckets",
        Severity.WARNING,
        "buckets",
        "Decode steps run eager because no bucket serves their batch, though smaller and larger ones are served.",
    ),
    _rule(
        "CGD403",
        "unpadded-batches",
        Severity.WARNING,
        "buckets",
        "Batches that are no bucket run eager, though a larger bucket exists: nothing is padded.",
    ),
    _rule(
        "CGD404",
        "prefill-in-decode-steps",
        Severity.WARNING,
        "buckets",
        "Decode rows run eager because prefill tokens are in the same step.",
    ),
    _rule(
        "CGD405",
        "unaligned-speculation",
        Severity.WARNING,
        "buckets",
        "Token counts of speculative decoding fit no bucket of whole drafts.",
    ),
    _rule(
        "CGD406", "graphs-never-launched", Severity.WARNING, "buckets", "No decode step of the trace launches a graph."
    ),
    _rule(
        "CGD407",
        "bypassed-bucket",
        Severity.WARNING,
        "buckets",
        "Decode steps run eager although their bucket has a graph.",
    ),
    _rule(
        "CGD408", "graphs-lost-for-good", Severity.WARNING, "buckets", "From some step on nothing is replayed any more."
    ),
    _rule("CGD409", "capture-in-step", Severity.WARNING, "buckets", "A graph is captured inside a decode step."),
    _rule(
        "CGD410",
        "exec-update-in-step",
        Severity.WARNING,
        "buckets",
        "An executable graph is updated inside decode steps.",
    ),
    _rule(
        "CGD411",
        "several-graphs-under-one-key",
        Severity.WARNING,
        "buckets",
        "One bucket is served by graphs that differ, is captured again between replays, or serves too many rows.",
    ),
    _rule(
        "CGD412",
        "kernels-outside-graphs",
        Severity.WARNING,
        "buckets",
        "Decode steps replay graphs and launch many kernels beside them: piecewise, or partly eager.",
    ),
    _rule(
        "CGD413",
        "unusual-launch-count",
        Severity.WARNING,
        "buckets",
        "Steps launch more or fewer graphs than is usual for their label.",
    ),
    _rule(
        "CGD414",
        "launches-on-side-thread",
        Severity.WARNING,
        "buckets",
        "A step's graphs or kernels are launched by another thread than the one that its range is on.",
    ),
    _rule(
        "CGD415",
        "failed-graph-call",
        Severity.WARNING,
        "buckets",
        "A capture, an instantiation, an update or a launch of a graph returned an error.",
    ),
    _rule(
        "CGD416",
        "steps-without-labels",
        Severity.NOTE,
        "buckets",
        "The trace has no step labels; steps were found by graph launches and waits.",
    ),
    _rule(
        "CGD500",
        "unmet-audit-gate",
        Severity.ERROR,
        "audit",
        "The keys do not meet what was demanded of them: hit rate, padding, graph memory.",
    ),
    _rule(
        "CGD501",
        "batches-above-largest-key",
        Severity.ERROR,
        "audit",
        "More requests are admitted than the largest key holds.",
    ),
    _rule(
        "CGD502",
        "hole-in-keys",
        Severity.ERROR,
        "audit",
        "Batches below the largest key have none that serves them: nothing is padded, or a key is missing.",
    ),
    _rule(
        "CGD503",
        "speculative-batches-without-key",
        Severity.ERROR,
        "audit",
        "No key holds these numbers of whole requests: sizes count tokens, and each request has several.",
    ),
    _rule(
        "CGD504",
        "adapters-without-key",
        Severity.ERROR,
        "audit",
        "No graph is captured for some numbers of active adapters.",
    ),
    _rule(
        "CGD505",
        "mixed-steps-without-key",
        Severity.WARNING,
        "audit",
        "Decode rows run eager when prefill tokens are in their step.",
    ),
    _rule(
        "CGD506",
        "piecewise-only-batches",
        Severity.WARNING,
        "audit",
        "Some batches run piecewise, while smaller ones have full graphs.",
    ),
    _rule(
        "CGD507",
        "unused-keys",
        Severity.WARNING,
        "audit",
        "Keys that no batch is ever looked up under (a note: that the given workload does not use).",
    ),
    _rule("CGD508", "ranks-with-different-keys", Severity.ERROR, "audit", "Ranks of one run capture different keys."),
    _rule(
        "CGD509",
        "fallback-without-recovery",
        Severity.ERROR,
        "audit",
        "After a burst the slow fallback keeps the batch so large that the fallback stays in use.",
    ),
    _rule(
        "CGD510",
        "cheaper-key-list",
        Severity.NOTE,
        "audit",
        "Another list of as many keys takes less time under the workload.",
    ),
    _rule(
        "CGD511",
        "untidy-key-list",
        Severity.NOTE,
        "audit",
        "The list is not what is captured: duplicates, another order, sizes that are dropped or truncated.",
    ),
    _rule("CGD512", "graphs-turned-off", Severity.WARNING, "audit", "The configuration turns graphs off."),
    _rule(
        "CGD513",
        "wrong-batches-in-key",
        Severity.ERROR,
        "audit",
        "A key's graph gives wrong results for batches that it serves.",
    ),
    _rule(
        "CGD514",
        "key-depends-on-last-key",
        Severity.ERROR,
        "audit",
        "A key's graph gives another result once another key has run before it.",
    ),
    _rule(
        "CGD515",
        "graph-slower-than-eager",
        Severity.WARNING,
        "audit",
        "A key's graph takes longer than the same step run eagerly.",
    ),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in _ALL}
"""All rules by code, in order."""


def page(code: str) -> str:
    """The page of a rule, in Markdown."""
    return (importlib.resources.files("cudagraph_doctor.rule_docs") / f"{code}.md").read_text(encoding="utf-8")
