"""The text for people."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Accepted, Outcome, Proof, Report, Severity, Status, Step
from cudagraph_doctor.report import terminal
from cudagraph_doctor.report.view import View

PLAIN = View()


def text(report: Report, view: View = PLAIN) -> str:
    return terminal.render(report, view)


def one_line(report: Report, view: View = PLAIN) -> str:
    return " ".join(text(report, view).split())


def with_outcome(report: Report, **changes: object) -> Report:
    [outcome] = report.outcomes
    return dataclasses.replace(report, outcomes=(dataclasses.replace(outcome, **changes),))  # type: ignore[arg-type]


def test_a_finding_is_told_in_full(found: Report) -> None:
    said = one_line(found)
    for part in (
        "Found 1 error and 1 note: `slot_mapping` is not refreshed before the replay.",
        "1. error CGD101 frozen-in-graph, bucket 4, first at step 3",
        "Culprit input slot_mapping, rows 1 to 3 captured [16, 32, 48] expected [17, 33, 49]",
        "replayed: /app/serving/decode.py:120 in Runner.run graph.replay()",
        "captured: /app/serving/decode.py:88 in Runner.capture",
        "Proof confirmed",
        "eager against eager: equal",
        "Healed by writing 24 bytes of `slot_mapping`",
        "Fix Copy this step's `slot_mapping`",
        "cudagraph-doctor explain CGD101",
        "2. note CGD107 graph-numerics",
        "Checked: 6 steps, 2 graphs; batch sizes [1, 3, 4].",
        "Not checked: - Kernels without a CPU form.",
    ):
        assert part in said


def test_it_is_plain_and_fits_80_columns(found: Report) -> None:
    lines = text(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)
    assert "\x1b" not in text(found)
    assert text(found) == text(found)
    assert "\x1b" in text(found, View(color=True))


def test_errors_come_before_notes(found: Report) -> None:
    turned = with_outcome(found, findings=found.findings[::-1])
    assert "1. error CGD101" in text(turned)


def test_the_verdict_of_a_clean_run(clean: Report) -> None:
    assert "Clean: nothing wrong was found (diff looked at 3 steps)." in text(clean)
    assert "Emulated" not in text(clean)


def test_the_banner_of_an_emulated_run(found: Report) -> None:
    assert "Emulated on the CPU: torch 2.13.0+cpu is a build without CUDA." in one_line(found)


def test_notes_and_suspicions_leave_it_clean(found: Report) -> None:
    frozen, rounding = found.findings
    assert "2 graphs); 1 note." in one_line(with_outcome(found, findings=(rounding,)))
    suspected = dataclasses.replace(frozen, proof=Proof.SUSPECTED)
    both = with_outcome(found, findings=(suspected, rounding))
    assert "2 graphs); 1 note and 1 suspicion." in one_line(both)
    assert "1. note" in text(both)  # what is sure comes first
    assert "does not fail the run" in one_line(both)


def test_a_warning_alone_is_found(found: Report) -> None:
    warning = dataclasses.replace(found.findings[0], severity=Severity.WARNING)
    assert "Found 1 warning:" in text(with_outcome(found, findings=(warning,)))


def test_an_incomplete_run_says_so(incomplete: Report) -> None:
    said = one_line(incomplete)
    assert "Found 1 error" in said
    assert "The run is incomplete, there may be more: capture: A bug in cudagraph-doctor: KeyError." in said


def test_inconclusive_and_failed(clean: Report) -> None:
    lost = Outcome("diff", Status.INCONCLUSIVE, "The process was lost.", "Look.", traceback="line 1\n" + "x" * 200)
    report = dataclasses.replace(clean, outcomes=(lost,))
    assert "Inconclusive: diff: The process was lost." in text(report)
    assert "Fix: Look." in text(report)
    assert "line 1" not in text(report)
    assert "line 1\n" + "x" * 200 in text(report, View(debug=True))  # not broken
    errored = dataclasses.replace(lost, status=Status.ERRORED)
    assert "Failed: diff:" in text(dataclasses.replace(clean, outcomes=(errored,)))


def test_a_reason_that_checks_share_is_told_once(clean: Report) -> None:
    lost = [Outcome(check, Status.INCONCLUSIVE, "The target raised ValueError.") for check in ("capture", "diff")]
    said = one_line(dataclasses.replace(clean, outcomes=(*lost, Outcome("inputs", Status.INCONCLUSIVE, "Too slow."))))
    assert "Inconclusive: capture and diff: The target raised ValueError.; inputs: Too slow." in said


def test_nothing_ran(clean: Report) -> None:
    skipped = Outcome("diff", Status.SKIPPED, "no target")
    assert "Inconclusive: no check ran." in text(dataclasses.replace(clean, outcomes=(skipped,)))
    assert "Inconclusive: no check ran." in text(dataclasses.replace(clean, outcomes=()))


def test_steps_are_one_line_a_run_of_a_key(found: Report) -> None:
    said = text(found)
    assert "Steps (. clean, X finding, n note):" in said
    assert "    bucket 1  rows 1 1    ..\n    bucket 4  rows 4 3 4  .Xn\n    bucket 1  rows 1      .\n" in said


def test_steps_with_verdicts_of_other_checks_are_words(found: Report) -> None:
    steps = (Step(0, 4, "4", "FULL"), Step(1, 4, "4", "EAGER"))
    assert "bucket 4  rows 4 4  FULL EAGER" in text(with_outcome(found, steps=steps))


def test_verbose_tells_all_evidence_and_steps(found: Report) -> None:
    steps = (Step(3, 4, "4", "finding", {"gap": "logits"}),)
    report = with_outcome(found, steps=steps)
    assert "remedies tried" not in text(report)
    verbose = text(report, View(verbose=True))
    assert "remedies tried: 7" in verbose
    assert "step 3, 4 rows: finding; gap: logits" in verbose


def test_markup_in_data_is_text(found: Report) -> None:
    frozen = dataclasses.replace(found.findings[0], message="The tensor [bold]x[/bold] :smile: is stale.")
    assert "[bold]x[/bold] :smile:" in text(with_outcome(found, findings=(frozen,)))


def test_what_is_not_counted_is_no_clean_bill(found: Report) -> None:
    accepted = tuple(
        dataclasses.replace(finding, accepted=Accepted("ignored", "command line")) for finding in found.findings
    )
    assert "Clean: nothing that counts was found" in one_line(with_outcome(found, findings=accepted))
    assert "2 findings not counted." in one_line(with_outcome(found, findings=accepted))
