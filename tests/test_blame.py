"""Whose exception it is, and where. Tracebacks are made by functions that live in modules of chosen names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudagraph_doctor import blame

OURS, USER, LIBRARY = "cudagraph_doctor.checks.some_check", "my_engine.decode", "torch.nn.functional"


@pytest.fixture
def raised_through(tmp_path: Path) -> Iterator[Callable[..., BaseException]]:
    """`raised_through(a, b, error="...")`: a function in module `a` calls one in `b`, which raises."""

    def function(module: str, body: str) -> Callable[[Callable[[], object]], object]:
        file = tmp_path / f"{module}.py"
        file.write_text(f"def call(inner):\n    {body}\n")
        space: dict[str, object] = {"__name__": module}
        exec(compile(file.read_text(), str(file), "exec"), space)
        made = space["call"]
        assert callable(made)
        return made

    def make(*modules: str, error: str = "ValueError('bad')") -> BaseException:
        inner = function(modules[-1], f"raise {error}")
        stack: Callable[[], object] = lambda: inner(stack)  # noqa: E731
        for module in reversed(modules[:-1]):
            outer, below = function(module, "return inner()"), stack
            stack = lambda outer=outer, below=below: outer(below)  # type: ignore[misc]  # noqa: E731
        try:
            stack()
        except BaseException as caught:
            return caught
        raise AssertionError("nothing was raised")

    # The frames of this file stand between the others; they are to count as nobody's.
    kept = sys.modules[__name__].__dict__["__name__"]
    sys.modules[__name__].__dict__["__name__"] = "contextlib"
    yield make
    sys.modules[__name__].__dict__["__name__"] = kept


@pytest.mark.parametrize(
    ("module", "owner"),
    [
        ("my_engine.decode", "user"),
        ("__main__", "user"),
        ("vllm.worker", "user"),
        ("torch.nn.modules.module", "library"),
        ("torchvision.ops", "user"),
        ("contextlib", "library"),
        ("importlib._bootstrap", "library"),
        ("cudagraph_doctor.proof.arms", "ours"),
        ("cudagraph_doctor", "ours"),
        ("cudagraph_doctor.reference_models.decode", "user"),
        ("cudagraph_doctor.skeletons.loop", "user"),
    ],
)
def test_owner(module: str, owner: str) -> None:
    assert blame.owner(module) == owner


@pytest.mark.parametrize(
    ("modules", "error", "ours"),
    [
        ([OURS], "ValueError", True),
        ([OURS, LIBRARY], "ValueError", True),
        ([OURS, USER], "ValueError", False),
        ([OURS, USER, LIBRARY], "RuntimeError", False),
        # our stand-in for torch.cuda refuses what CUDA would refuse
        ([OURS, USER, OURS], "RuntimeError('operation not permitted when stream is capturing')", False),
        ([OURS, USER, OURS, LIBRARY], "IndexError('index 9 is out of bounds')", False),
        # our stand-in breaks
        ([OURS, USER, OURS], "KeyError('stream')", True),
        ([OURS, USER, OURS, LIBRARY], "KeyError('stream')", True),
    ],
)
def test_is_ours(raised_through: Callable[..., BaseException], modules: list[str], error: str, ours: bool) -> None:
    assert blame.is_ours(raised_through(*modules, error=error)) is ours


def test_the_users_line_is_the_one_nearest_to_the_error(
    raised_through: Callable[..., BaseException], tmp_path: Path
) -> None:
    error = raised_through(OURS, USER, "my_engine.attention", LIBRARY)
    place = blame.user_location(error)
    assert place
    assert place.file == os.path.realpath(tmp_path / "my_engine.attention.py")
    assert (place.line, place.function, place.code) == (2, "call", "return inner()")
    assert blame.user_location(raised_through(OURS, LIBRARY)) is None


def test_the_traceback_starts_at_the_users_first_frame(raised_through: Callable[..., BaseException]) -> None:
    error = raised_through(OURS, USER, LIBRARY)
    before = error.__traceback__
    text = blame.user_traceback(error)
    assert f"{OURS}.py" not in text
    assert text.index(f"{USER}.py") < text.index(f"{LIBRARY}.py") < text.index("ValueError: bad")
    assert error.__traceback__ is before


def test_a_traceback_without_user_is_whole(raised_through: Callable[..., BaseException]) -> None:
    assert f"{OURS}.py" in blame.user_traceback(raised_through(OURS, LIBRARY))


def test_describe(
    raised_through: Callable[..., BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = raised_through(OURS, USER, error="ValueError('two\\nlines')")
    assert blame.describe(error) == f"ValueError: two lines, at {USER}.py:2 in call: raise ValueError('two\\nlines')"
    assert blame.describe(raised_through(OURS, error="KeyError")) == "KeyError"


def test_a_syntax_error_is_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\ny = (\n", str(tmp_path / "broken.py"), "exec")
    place = blame.user_location(caught.value)
    assert place
    assert (Path(place.file).name, place.line, place.code) == ("broken.py", 2, "y = (")


def test_an_error_that_no_frame_raised_has_no_line() -> None:
    made_in_c = ValueError("never raised from Python")
    assert list(blame.frames(made_in_c)) == [] and blame.user_location(made_in_c) is None


def test_the_error_that_broke_a_capture_counts_not_the_one_that_ends_it() -> None:
    try:
        try:
            raise RuntimeError("operation not permitted when stream is capturing")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as error:
        assert "not permitted" in blame.describe(error)
        assert "not permitted" in str(blame.first(error))


def test_behind_the_mask_what_the_capture_was_refused_for_counts_not_what_was_raised_of_it() -> None:
    wrapped = RuntimeError("the step failed")
    wrapped.__cause__ = culprit = RuntimeError("operation not permitted when stream is capturing")
    mask = RuntimeError("operation failed due to a previous error during capture")
    mask.__context__ = wrapped
    assert blame.first(mask) is culprit
    assert blame.first(wrapped) is wrapped
    assert blame.first(culprit) is culprit


def test_an_error_without_a_mask_is_its_own_first() -> None:
    error = ValueError("bad shape")
    error.__context__ = KeyError("earlier")
    assert blame.first(error) is error


def test_what_was_being_done_is_told_of_the_innermost() -> None:
    with pytest.raises(ValueError, match="bad") as raised, blame.during("a run"), blame.during("step 3"):
        raise ValueError("bad")
    assert blame.describe(raised.value).startswith("ValueError: bad, during step 3")
