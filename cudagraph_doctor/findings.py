"""What a run says: findings, outcomes of checks, the report. Plain data, JSON both ways, no torch.

The JSON form of `Report` is the product's artifact: every format is rendered from it (see `report/`), and the child
process sends it to the parent. Next on the path: `rules.py` (the codes), `policy.py` (the exit code).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class Severity(StrEnum):
    """How much a finding matters. Order: note < warning < error."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 2 for an error: what `--fail-on` compares."""
        return list(Severity).index(self)


class Proof(StrEnum):
    """How sure a finding is (design: confirmed, measured, suspected). A suspicion never fails a gate."""

    CONFIRMED = "confirmed"
    """Healed by writing the right bytes, or forced to appear."""
    MEASURED = "measured"
    """Differs n of n times while its control differs 0 of n."""
    SUSPECTED = "suspected"
    """Fits what was seen; not shown."""


class Status(StrEnum):
    """What became of one check."""

    PASSED = "passed"
    FOUND = "found"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"
    ERRORED = "errored"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code."""

    file: str
    """Path as given by Python (realpath taken); `report/` makes it relative to the working tree."""
    line: int
    function: str = ""
    code: str = ""
    """The source line, stripped; empty if it could not be read."""
    role: str = ""
    """What happened here, for related locations: "captured", "replayed", "allocated", "last written"..."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What a finding accuses, by name."""

    kind: str
    """"input" | "state" | "weight" | "buffer" | "output" | "parameter" | "launch" | "node" | "step order" | "bucket" |
    "gate" | "thread" | "unnamed"."""
    name: str
    """The tensor's name, the parameter ("paged_attention_decode, parameter 4"), the module path..."""
    detail: str = ""
    """Which rows, columns, bytes, indices; free text."""
    captured: Any = None
    """The value that the replay read, as plain JSON (shortened)."""
    expected: Any = None
    """The value that it should have read."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Why a finding does not count, however severe it is."""

    how: str
    """"known" (in the baseline) | "ignored" | "not selected"."""
    where: str
    """Where that is said: "command line", "pyproject.toml", "target", a baseline's file."""
    reason: str = ""
    """The user's own words."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault (or note), with its culprit and its evidence. Built by checks, read by reports and policy."""

    code: str
    """Rule code, `CGD` and three digits: see `rules.RULES`."""
    message: str
    """The facts of this case in one or two sentences."""
    severity: Severity
    proof: Proof
    fix: str
    """What to do, in one or two sentences."""
    culprit: Culprit | None = None
    location: Location | None = None
    related: tuple[Location, ...] = ()
    step: int | None = None
    """First step at which it was seen."""
    key: str = ""
    """The bucket (or other key) of the graph, as text."""
    rank: int | None = None
    backend: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain JSON: measurements, controls, what healed it, what follows from it."""
    accepted: Accepted | None = None
    """Set by the gate, never by a check."""

    @property
    def fingerprint(self) -> str:
        """Identifies the fault across runs, moved lines and checkouts.

        Made of the code, the culprit's name, and the place by file name, function and text; where nothing names it, of
        the message without its numbers. No line, path, address, step or value is in it.
        """
        culprit = (self.culprit.kind, self.culprit.name) if self.culprit else ("", "")
        place = self.location
        where = (os.path.basename(place.file), place.function, " ".join(place.code.split())) if place else ()
        unnamed = () if self.culprit or place else (re.sub(r"0x[0-9a-f]+|\d+", "#", self.message),)
        told = "\0".join((self.code, *culprit, *where, *unnamed))
        return hashlib.sha256(told.encode(errors="backslashreplace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a check's plan and what came out of it."""

    index: int
    rows: int
    key: str
    verdict: str
    """`diff`: "clean", "finding", "note", "inconclusive". `buckets`: FULL, PIECEWISE, ..."""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check did."""

    check: str
    status: Status
    reason: str = ""
    """Why, when it is not `passed` or `found`."""
    fix: str = ""
    """What to do about `reason`."""
    not_checked: tuple[str, ...] = ()
    checked: dict[str, Any] = field(default_factory=dict)
    """What was looked at, in numbers: steps, keys, nodes, arms, repetitions."""
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    rules: tuple[str, ...] = ()
    """The codes that this check evaluated."""
    seconds: float = 0.0
    traceback: str = ""
    """The stack of an unexpected error or of a hang; shown with --debug."""
    coverage: float | None = None
    """Share, 0 to 1, of what was to be judged that could be; None where the check does not count it."""
    location: Location | None = None
    """The user's line that `reason` is about."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One root cause: what several checks found of one fault. Made by `causes.join`; numbers are positions."""

    leading: int
    """In `Report.findings`: the one that tells most of it."""
    others: tuple[int, ...] = ()
    """In `Report.findings`: what follows from it, or is the same seen by another check."""
    joined: tuple[str, ...] = ()
    """For each of `others`, what shows that it is the same fault."""
    evidence: tuple[str, ...] = ()
    """What all checks together know, a line each: from the harm to who did it, and what heals it."""
    repro: str = ""
    """A script that shows the fault with torch alone; "" if none was written."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What was demanded of a run, and what came of it."""

    fail_on: str = Severity.ERROR.value
    """Least severity that fails the run, or "never"."""
    exit_code: int = 0
    baseline: str = ""
    """The file of known findings; "" without one."""
    fixed: tuple[str, ...] = ()
    """Known findings that are gone, in words."""
    unused: tuple[str, ...] = ()
    """Ignores that nothing was ignored by, in words."""
    unmet: tuple[str, ...] = ()
    """Demands on how much has to be checked that were not met, in words."""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `to_json` and `from_json` are inverse."""

    tool: dict[str, Any]
    environment: dict[str, Any]
    target: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    gate: Gate | None = None
    """None: not judged, as by `examine` itself."""
    causes: tuple[Cause, ...] = ()
    """What the findings of several checks come to, the worst first; empty where one check ran."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the checks."""
        return tuple(f for outcome in self.outcomes for f in outcome.findings)

    @property
    def roots(self) -> tuple[Finding, ...]:
        """One finding a fault: those that lead a cause, in order, then those that belong to none."""
        findings = self.findings
        joined = {number for cause in self.causes for number in (cause.leading, *cause.others)}
        leading = [findings[cause.leading] for cause in self.causes]
        return (*leading, *(f for number, f in enumerate(findings) if number not in joined))

    def followers(self, root: Finding) -> tuple[Finding, ...]:
        """The other findings of the fault that `root` leads."""
        findings = self.findings
        cause = next((cause for cause in self.causes if findings[cause.leading] is root), None)
        return tuple(findings[number] for number in cause.others) if cause else ()


def to_json(value: Any) -> Any:
    """Turn dataclasses, enums and tuples of this module into plain JSON; adds `fingerprint` to findings."""
    if isinstance(value, StrEnum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Finding):
            plain["fingerprint"] = value.fingerprint
        return plain
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def location_from_json(data: dict[str, Any] | None) -> Location | None:
    """Inverse of `to_json` for a `Location`."""
    return None if data is None else Location(**data)


def finding_from_json(data: dict[str, Any]) -> Finding:
    """Inverse of `to_json` for a `Finding`. Raises KeyError, TypeError or ValueError on a malformed one."""
    fields = {k: v for k, v in data.items() if k != "fingerprint"}
    fields["severity"] = Severity(fields["severity"])
    fields["proof"] = Proof(fields["proof"])
    fields["culprit"] = Culprit(**fields["culprit"]) if fields.get("culprit") else None
    fields["location"] = location_from_json(fields.get("location"))
    fields["related"] = tuple(Location(**place) for place in fields.get("related", ()))
    fields["accepted"] = Accepted(**fields["accepted"]) if fields.get("accepted") else None
    return Finding(**fields)


def first_step(findings: Iterable[Finding]) -> int | None:
    """The first step at which any of them was seen: what one check takes for rounding, another tells."""
    return min((finding.step for finding in findings if finding.step is not None), default=None)


def how_shown(text: str) -> dict[str, str]:
    """As evidence: "healed by" what (`healed_by`), or else how it was shown (`shown_by`)."""
    healed = text.removeprefix("healed by ")
    return {"healed_by": healed} if healed != text else {"shown_by": text}


def outcome_from_json(data: dict[str, Any]) -> Outcome:
    """Inverse of `to_json` for an `Outcome`. Raises KeyError, TypeError or ValueError on a malformed one."""
    fields = dict(data)
    fields["status"] = Status(fields["status"])
    fields["not_checked"] = tuple(fields.get("not_checked", ()))
    fields["rules"] = tuple(fields.get("rules", ()))
    fields["steps"] = tuple(Step(**step) for step in fields.get("steps", ()))
    fields["findings"] = tuple(finding_from_json(f) for f in fields.get("findings", ()))
    fields["location"] = location_from_json(fields.get("location"))
    return Outcome(**fields)


def report_from_json(data: dict[str, Any]) -> Report:
    """Inverse of `to_json` for a `Report`. Raises KeyError, TypeError or ValueError on a malformed one."""
    fields = dict(data)
    fields["outcomes"] = tuple(outcome_from_json(o) for o in fields["outcomes"])
    fields["gate"] = _gate_from_json(fields["gate"]) if fields.get("gate") else None
    fields["causes"] = tuple(Cause(**_tuples(cause)) for cause in fields.get("causes", ()))
    return Report(**fields)


def _gate_from_json(data: dict[str, Any]) -> Gate:
    return Gate(**_tuples(data))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
