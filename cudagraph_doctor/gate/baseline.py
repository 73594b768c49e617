"""The file of known findings: written from reports, read to tell old findings from new ones, and gone ones from both.

Findings are told apart by their fingerprints, which survive moved lines. Several faults can share one (two equal lines
of one function), so each is counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Accepted, Finding, Outcome, Report, Status
from cudagraph_doctor.rules import RULES

SCHEMA_VERSION = 1
_FIX = "Make one from saved reports: `cudagraph-doctor baseline run.json --output {}`."


@dataclass(frozen=True, slots=True)
class Known:
    """One known finding: the fingerprint decides, the rest is for people and for telling what is gone."""

    fingerprint: str
    code: str
    check: str
    target: str
    """SPEC of the target; "" for traces, whose names change from run to run."""
    culprit: str
    place: str
    """File and function."""
    message: str

    @property
    def words(self) -> str:
        """`CGD101 frozen-in-graph: input slot_mapping in decode.py, Runner.run`."""
        name = f" {RULES[self.code].name}" if self.code in RULES else ""
        what = " in ".join(part for part in (self.culprit or self.message, self.place) if part)
        return f"{self.code}{name}: {what}"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Known findings, one entry each time one was found."""

    known: tuple[Known, ...]
    file: str = ""

    def accepted(self, findings: Iterable[Finding]) -> Iterator[Accepted | None]:
        """For each finding, in order, whether it is known; more of a fingerprint than there were are new."""
        left = Counter(known.fingerprint for known in self.known)
        for finding in findings:
            if left[finding.fingerprint] > 0:
                left[finding.fingerprint] -= 1
                yield Accepted("known", self.file)
            else:
                yield None

    def fixed(self, report: Report) -> Iterator[str]:
        """The known findings that are gone: their check ran to its end on the same target, and did not find them."""
        left = Counter(finding.fingerprint for finding in report.findings)
        done = {
            (outcome.check, code, _target(outcome, report))
            for outcome in report.outcomes
            if outcome.status in (Status.PASSED, Status.FOUND)
            for code in outcome.rules
        }
        for known in self.known:
            if left[known.fingerprint] > 0:
                left[known.fingerprint] -= 1
            elif (known.check, known.code, known.target) in done:
                yield f"{known.words}. It can leave {self.file}."


def of_reports(reports: Iterable[Report]) -> Baseline:
    """What is to be known from now on: all findings but those that are ignored."""
    return Baseline(
        tuple(
            _known(finding, outcome, report)
            for report in reports
            for outcome in report.outcomes
            for finding in outcome.findings
            if finding.accepted is None or finding.accepted.how == "known"
        )
    )


def text(baseline: Baseline) -> str:
    """The file's text: sorted, so that it changes as little as can be."""
    known = sorted(
        (asdict(entry) for entry in baseline.known), key=lambda e: (e["target"], e["code"], e["fingerprint"])
    )
    data = {"schema_version": SCHEMA_VERSION, "known": known}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def load(file: Path) -> Baseline:
    """Read one. Raises UsageError, in words, if it is not there, is none, or is of a newer version."""
    fix = _FIX.format(file)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f'The baseline "{file}" cannot be read: {error.strerror}.', fix=fix) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f'The baseline "{file}" is no complete JSON.', seen=str(error), fix=fix) from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or not isinstance(data.get("known"), list):
        hint = "it is a report" if isinstance(data, dict) and "outcomes" in data else 'it has no list "known"'
        raise UsageError(f'"{file}" is no baseline.', seen=hint, fix=fix)
    if version > SCHEMA_VERSION:
        raise UsageError(
            f'The baseline "{file}" has schema_version {version}; this version reads up to {SCHEMA_VERSION}.',
            fix="Upgrade cudagraph-doctor.",
        )
    try:
        entries = [Known(**entry) for entry in data["known"]]
    except TypeError as error:
        raise UsageError(f'An entry of the baseline "{file}" is not whole.', seen=str(error), fix=fix) from None
    if not all(isinstance(value, str) for entry in entries for value in asdict(entry).values()):
        raise UsageError(f'An entry of the baseline "{file}" holds something that is no text.', fix=fix)
    return Baseline(tuple(entries), str(file))


def _known(finding: Finding, outcome: Outcome, report: Report) -> Known:
    culprit, at = finding.culprit, finding.location
    return Known(
        finding.fingerprint,
        finding.code,
        outcome.check,
        _target(outcome, report),
        f"{culprit.kind} {culprit.name}" if culprit else "",
        ", ".join(part for part in (Path(at.file).name, at.function) if part) if at else "",
        finding.message,
    )


def _target(outcome: Outcome, report: Report) -> str:
    return "" if outcome.check == "buckets" else str(report.target.get("spec", ""))
