"""The fixture in a user's own test: one line, and a failure that tells the story."""

from __future__ import annotations

import pytest
import torch  # before `pytester`, which forgets what is imported while it is there

pytest_plugins = ["pytester"]

TARGETS = """
import torch

class Sound:
    buckets = (1, 2)
    def __init__(self, device):
        self.total = torch.zeros(2, device=device)
    def reset(self):
        self.total.zero_()
    def next_inputs(self, step, n):
        return {"x": torch.arange(n) + step + 1.0}
    def forward(self, inputs):
        self.total[: len(inputs["x"])] += inputs["x"]
        return self.total[: len(inputs["x"])] * 2

class Forgetful(Sound):
    def update(self, static, fresh):
        pass

class Reading(Sound):
    def forward(self, inputs):
        if inputs["x"].max().item() > 100:
            return inputs["x"]
        return super().forward(inputs)
"""


def run(pytester: pytest.Pytester, body: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(targets=TARGETS)
    pytester.syspathinsert()
    pytester.makepyfile(test_graphs=f"from targets import *\n\n{body}")
    # named as its entry point is, so that it is loaded once, installed or not
    emulated = ("-p", "cudagraph_doctor.pytest_plugin", "--cudagraph-doctor-backend", "emulated")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *emulated, *words)


def test_one_line_passes_and_fails_with_the_narrative(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_sound(cudagraph_doctor):
    cudagraph_doctor.diff(Sound, steps=2)

def test_made_inside(cudagraph_doctor):
    report = cudagraph_doctor.diff(Sound(cudagraph_doctor.device), steps=2)
    assert report.outcomes[0].coverage == 1.0

def test_forgetful(cudagraph_doctor):
    cudagraph_doctor.diff(Forgetful, steps=2)

def test_captures(cudagraph_doctor):
    cudagraph_doctor.capture(Sound)

def test_reads(cudagraph_doctor):
    cudagraph_doctor.capture(Reading)

def test_hooks_are_out():
    assert "emulation" not in torch.cuda.CUDAGraph.__module__
""",
    )
    result.assert_outcomes(passed=4, failed=2)
    text = result.stdout.str()
    assert "Found 1 error: `x` is not refreshed before the replay." in text
    assert "Culprit  input x" in text
    assert "CGD201 host-read-in-capture" in text and "targets.py:21 in forward" in text
    assert "pytest_plugin.py" not in text  # the story, not our stack


def test_settings_of_the_project_hold(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        """
        [tool.cudagraph-doctor]
        steps = 2
        [tool.cudagraph-doctor.ignore]
        CGD102 = "being mended"
        """
    )
    result = run(
        pytester,
        """
def test_forgetful(cudagraph_doctor):
    report = cudagraph_doctor.diff(Forgetful)
    assert report.settings["steps"] == 2
    assert {finding.accepted.reason for finding in report.findings} == {"being mended"}
""",
    )
    result.assert_outcomes(passed=1)


def test_where_nothing_was_shown_the_test_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_no_target(cudagraph_doctor):
    cudagraph_doctor.diff(object())

def test_not_compared(cudagraph_doctor):
    cudagraph_doctor.diff(Reading, steps=2)

def test_slip(cudagraph_doctor):
    cudagraph_doctor.diff(Sound, step=2)
""",
    )
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    assert "is no target: it has no member" in text
    assert "Inconclusive: diff:" in text
    assert "unexpected keyword argument 'step'" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--cudagraph-doctor-backend", "cuda"), "cannot be used here"), ((), 'Did you mean "steps"?')],
)
def test_what_cannot_be_set_up_is_an_error(pytester: pytest.Pytester, words: tuple[str, ...], said: str) -> None:
    if words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    if not words:
        pytester.makepyprojecttoml("[tool.cudagraph-doctor]\nstep = 2\n")
    result = run(pytester, "def test_sound(cudagraph_doctor):\n    cudagraph_doctor.diff(Sound)\n", *words)
    result.assert_outcomes(errors=1)
    assert said in result.stdout.str()


def test_nothing_heavy_is_imported_before_a_test_asks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n\ndef test_light():\n    assert not {'torch', 'click', 'rich'} & set(sys.modules)\n"
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "cudagraph_doctor.pytest_plugin")
    result.assert_outcomes(passed=1)
