"""From the worker's events, and from how the child ended, to a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.child import End
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.examine import Run
from cudagraph_doctor.findings import Culprit, Finding, Outcome, Proof, Severity, Status, report_from_json, to_json
from cudagraph_doctor.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

FREED = Finding(
    "CGD101", "Freed.", Severity.ERROR, Proof.MEASURED, "Keep it.", Culprit("input", "x"), evidence={"n": 1}
)


def a_run(*checks: str) -> Run:
    return Run(Settings("diff", timeout_s=9), checks or ("diff",), Display())


def end(code: int = 0, *, timed_out: bool = False, complete: bool = False, stacks: str = "", tail: str = "") -> End:
    return End(code, timed_out, complete, stacks, tail)


def journal(run: Run) -> None:
    run.on_event({"event": "journal", "finding": to_json(FREED)})


def outcome(run: Run, check: str) -> None:
    run.on_event({"event": "outcome", "outcome": to_json(Outcome(check, Status.PASSED))})


def test_events_become_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run()
    run.on_event({"event": "stage", "text": "importing torch", "total": 0})
    run.on_event({"event": "backend", "environment": {"backend": "emulated"}})
    run.on_event({"event": "target", "target": {"spec": "reference", "form": "loop"}})
    run.on_event({"event": "say", "text": "48 steps"})
    outcome(run, "diff")
    run.ended(end(complete=True))
    report = run.report()
    assert report.environment == {"backend": "emulated"}
    assert report.target["form"] == "loop"
    assert report.settings["timeout_s"] == 9
    assert [o.status for o in report.outcomes] == [Status.PASSED]
    assert capsys.readouterr().err == "cudagraph-doctor: 48 steps\n"
    assert report_from_json(json.loads(json.dumps(to_json(report)))) == report


def test_a_refusal_is_raised() -> None:
    run = a_run()
    run.on_event({"event": "refused", "what": "No target.", "seen": "", "fix": "Name one.", "traceback": "T"})
    run.ended(end(complete=True))
    with pytest.raises(UsageError, match="No target") as refused:
        run.report()
    assert (refused.value.fix, refused.value.traceback) == ("Name one.", "T")


def test_a_crash_at_the_very_end_changes_nothing() -> None:
    run = a_run()
    outcome(run, "diff")
    run.ended(end(-11, complete=True))
    assert [o.status for o in run.report().outcomes] == [Status.PASSED]


def test_what_was_done_before_the_loss_stands() -> None:
    run = a_run("diff", "capture", "inputs")
    outcome(run, "diff")
    journal(run)
    run.on_event({"event": "advance", "text": "replay of graph 4"})
    run.ended(end(-11, stacks="Fatal Python error"))
    passed, found, lost = run.report().outcomes
    assert passed.status is Status.PASSED
    assert (found.check, found.status) == ("capture", Status.FOUND)
    [finding] = found.findings
    assert finding.evidence == {"n": 1, "process_lost": "killed by SIGSEGV"}
    assert (finding.code, finding.proof) == ("CGD101", Proof.MEASURED)
    assert found.rules == ("CGD101",)
    assert "SIGSEGV" in found.reason
    assert (lost.check, lost.status) == ("inputs", Status.INCONCLUSIVE)
    assert "last seen: replay of graph 4" in lost.reason
    assert lost.traceback == "Fatal Python error"


def test_a_lost_device_is_a_lost_process() -> None:
    run = a_run()
    journal(run)
    run.on_event({"event": "lost", "reason": "RuntimeError: illegal memory access", "traceback": "T"})
    run.ended(end(complete=True))
    [found] = run.report().outcomes
    assert found.findings[0].evidence["process_lost"] == "RuntimeError: illegal memory access"


def test_the_killer_is_guessed() -> None:
    run = a_run()
    run.on_event({"event": "stage", "text": "captures", "total": 1})
    run.ended(end(-9))
    assert "ran out of memory" in run.report().outcomes[0].fix


def test_an_unknown_signal() -> None:
    run = a_run()
    run.ended(end(-64 - 8))
    assert "killed by signal 72" in run.report().outcomes[0].reason


def test_a_time_out_names_the_last_stage() -> None:
    run = a_run()
    run.on_event({"event": "stage", "text": "captures", "total": 3})
    run.ended(end(-9, timed_out=True, stacks="Thread 1"))
    [lost] = run.report().outcomes
    assert lost.status is Status.INCONCLUSIVE
    assert lost.reason == "It was not finished after 9 s and was stopped (last seen: captures)."
    assert lost.traceback == "Thread 1"


def test_a_child_that_never_spoke_is_our_fault() -> None:
    run = a_run()
    run.ended(end(1, tail="ImportError"))
    [failed] = run.report().outcomes
    assert (failed.status, failed.traceback) == (Status.ERRORED, "ImportError")


def test_several_checks_share_one_child(fake_world: FakeWorld) -> None:
    fake_world.target("open('pids', 'a').write(f'{os.getpid()} ')")
    program = (
        "import json\n"
        "from cudagraph_doctor.checks import CHECKS\n"
        "from cudagraph_doctor.display import Display\n"
        "from cudagraph_doctor.examine import examine\n"
        "from cudagraph_doctor.settings import Settings\n"
        "report = examine(Settings('checkup', 'naughty.py'), Display(), ('diff', 'diff'))\n"
        "print([outcome.status.value for outcome in report.outcomes])\n"
    )
    done = fake_world.python(program)
    assert done.stdout == "['passed', 'passed']\n", done.stderr
    assert len(set((fake_world.folder / "pids").read_text().split())) == 1
