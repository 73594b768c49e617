"""The same checks as a test: one line each."""

from doctor import Target


def test_replays_are_equal_to_eager_steps(cudagraph_doctor):
    cudagraph_doctor.diff(Target)


def test_nothing_illegal_is_captured(cudagraph_doctor):
    cudagraph_doctor.capture(Target)
