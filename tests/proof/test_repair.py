"""What could be wrong with a replay, and mending it for one run; the lists on made-up scenes, the mending for real."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend, Edit, LiveGraph
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.repair import (
    Cause,
    Remedy,
    applied,
    corner,
    first_healer,
    input_remedies,
    moved_remedies,
    padding_moves,
    tail_remedies,
    transplants,
    try_out,
)
from cudagraph_doctor.proof.scene import Scene, look
from cudagraph_doctor.proof.subject import Held, Planned

Tensors = Mapping[str, torch.Tensor]
Make = Callable[..., Any]
AT = Planned(0, 0, 2, 4)
"""Two rows in a bucket of four."""


def ints(*values: Any) -> torch.Tensor:
    """int64."""
    return torch.tensor(values, dtype=torch.int64)


def scene(inputs: Tensors, others: Tensors | None = None, moved: Tensors | None = None) -> Scene:
    """A replay that found these contents in what its graph captured."""
    captured = {**inputs, **(others or {})}
    held = Held(LiveGraph(0, weakref.ref(set())), captured, frozenset(inputs))
    return Scene([held], {name: tensor.clone() for name, tensor in captured.items()}, {}, dict(moved or {}))


def told(remedies: Sequence[Remedy]) -> list[tuple[str, Cause, str]]:
    """(name, cause, where) of each."""
    return [(remedy.name, remedy.cause, remedy.where) for remedy in remedies]


def is_view(part: torch.Tensor | None, whole: torch.Tensor) -> bool:
    """Whether writing `part` writes `whole`."""
    return part is not None and part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


# the leading part


def test_corner_has_the_shape_of_the_value() -> None:
    buffer = torch.arange(12).view(4, 3)
    part = corner(buffer, torch.zeros(2, 2))
    assert part is not None and part.tolist() == [[0, 1], [3, 4]] and is_view(part, buffer)
    assert corner(buffer, torch.zeros(5, 1)) is None and corner(buffer, torch.zeros(2)) is None
    scalar = torch.tensor(3)
    assert corner(scalar, torch.tensor(4)) is scalar and corner(scalar, torch.zeros(1)) is None


# inputs that hold another value than the true one


def test_an_input_that_was_not_refreshed() -> None:
    slots = ints(5, 6, 8, 8)
    (remedy,) = input_remedies(scene({"slots": slots}), {"slots": ints(5, 7)}, AT, True)
    assert told([remedy]) == [("slots", Cause.NOT_REFRESHED, "row 1")]
    assert remedy.kind == "input" and remedy.bytes == 16 and is_view(remedy.buffer, slots)
    assert remedy.held is not None and remedy.held.tolist() == [5, 6]
    assert remedy.right is not None and remedy.right.tolist() == [5, 7]


def test_an_input_in_place_needs_nothing() -> None:
    assert input_remedies(scene({"slots": ints(5, 7, 8, 8)}), {"slots": ints(5, 7)}, AT, True) == []


def test_columns_that_were_refreshed_beside_others_that_were_not() -> None:
    table = ints([1, 0, 0], [2, 0, 0], [0, 0, 0])
    (remedy,) = input_remedies(scene({"table": table}), {"table": ints([1, 4, 5], [2, 0, 6])}, AT, True)
    assert told([remedy]) == [("table", Cause.PARTLY_REFRESHED, "rows 0 to 1, columns 1 to 2")]


def test_a_table_without_a_column_in_place_was_not_refreshed_at_all() -> None:
    table = ints([1, 0], [2, 0])
    (remedy,) = input_remedies(scene({"table": table}), {"table": ints([3, 4], [2, 5])}, AT, True)
    assert remedy.cause is Cause.NOT_REFRESHED


def test_an_input_whose_name_belongs_to_other_memory_was_rebound() -> None:
    found = input_remedies(scene({"slots": ints(5, 6)}, moved={"slots": ints(1, 2)}), {"slots": ints(1, 2)}, AT, True)
    assert told(found) == [("slots", Cause.REBOUND, "rows 0 to 1")]


def test_integers_are_brought_to_the_buffers_type() -> None:
    (remedy,) = input_remedies(scene({"n": ints(1).int()}), {"n": ints(2)}, AT, True)
    assert remedy.right is not None and remedy.right.dtype is torch.int32


@pytest.mark.parametrize("value", [torch.ones(5), torch.ones(1, 1), torch.ones(1, dtype=torch.float64)])
def test_what_does_not_fit_is_not_tried(value: torch.Tensor) -> None:
    assert input_remedies(scene({"x": torch.zeros(4)}), {"x": value}, AT, True) == []


def test_a_scalar_input() -> None:
    (remedy,) = input_remedies(scene({"n": torch.tensor(1)}), {"n": torch.tensor(2)}, AT, True)
    assert remedy.right is not None and remedy.right.item() == 2


# guesses, where the target does not tell the truth


def test_the_namesake_comes_before_guesses() -> None:
    found = input_remedies(
        scene({}, {"static.tokens": ints(0, 7), "static.slots": ints(0, 7)}),
        {"plan.lens": ints(3, 4), "plan.slots": ints(5, 6)},
        AT,
        False,
    )
    tried = [(remedy.name, remedy.notes["truth"], remedy.namesake) for remedy in found]
    assert tried[0] == ("static.slots", "plan.slots", True)
    assert tried[1:] == [("static.tokens", "plan.lens", False), ("static.tokens", "plan.slots", False)]


def test_a_buffer_with_its_namesakes_value_is_right() -> None:
    assert input_remedies(scene({}, {"static.slots": ints(5, 6)}), {"plan.slots": ints(5, 6)}, AT, False) == []


def test_a_guess_never_writes_a_number_that_the_buffer_has_not_held() -> None:
    around = scene({}, {"static.slots": ints(2, 7)})
    for value in (ints(3, 8), ints(1, 3), ints(-1, 3)):
        assert input_remedies(around, {"plan.new": value}, AT, False) == []
    assert len(input_remedies(around, {"plan.new": ints(7, 2)}, AT, False)) == 1


@pytest.mark.parametrize("value", [ints(3, 4).int(), ints([3], [4]), torch.tensor([3.0, 4.0]), ints()])
def test_a_guess_is_of_the_same_kind(value: torch.Tensor) -> None:
    assert input_remedies(scene({}, {"static.slots": ints(2, 7)}), {"plan.new": value}, AT, False) == []


def test_nothing_is_guessed_for_numbers_that_are_no_indices() -> None:
    assert input_remedies(scene({}, {"static.x": torch.tensor([0.0, 9.0])}), {"y": torch.ones(2)}, AT, False) == []


@pytest.mark.gpu
def test_the_truth_may_lie_on_the_host(cuda: Backend) -> None:
    table = ints([1, 0], [2, 0]).cuda()
    truth = {"plan.table": ints([1, 4], [2, 5]), "plan.guess": ints([1, 1], [1, 1])}
    (remedy,) = input_remedies(scene({}, {"static.table": table}), truth, AT, False)
    assert remedy.right is not None and remedy.right.is_cuda and remedy.cause is Cause.PARTLY_REFRESHED
    assert len(input_remedies(scene({}, {"static.other": table}), truth, AT, False)) == 1


# padding


def test_a_stale_tail_is_replaced_by_a_pristine_one() -> None:
    slots = ints(5, 6, 3, 4)
    (remedy,) = tail_remedies(scene({"slots": slots}), {"slots": ints(5, 6, -1, -1)}, AT)
    assert told([remedy]) == [("slots", Cause.STALE_TAIL, "padding rows 2 and up")]
    assert is_view(remedy.buffer, slots) and remedy.bytes == 16
    assert remedy.right is not None and remedy.right.tolist() == [-1, -1]


def test_tails_that_are_not_stale_or_not_known() -> None:
    around = scene({"slots": ints(5, 6, -1, -1), "lens": ints(1, 2, 3, 4)}, {"counts": ints(1, 2, 3, 4)})
    pristine = {"slots": ints(0, 0, -1, -1), "lens": ints(0, 0), "counts": ints(0, 0, 0, 0)}
    assert tail_remedies(around, pristine, AT) == []  # in place; of another shape; no input
    assert tail_remedies(around, {}, AT) == []


def test_only_inputs_of_the_buckets_size_have_padding() -> None:
    around = scene({"wide": ints(5, 6, 3, 4, 5), "scalar": torch.tensor(3)})
    assert tail_remedies(around, {"wide": ints(5, 6, 0, 0, 0), "scalar": torch.tensor(4)}, AT) == []
    # an engine names no inputs: its buffers may be wider than the bucket
    engine = scene({}, {"wide": ints(5, 6, 3, 4, 5)})
    assert len(tail_remedies(engine, {"wide": ints(5, 6, 0, 0, 0)}, AT)) == 1


def test_padding_that_addresses_what_was_hit_is_moved_to_a_live_row() -> None:
    slots = ints(3, 5, 0, 0)
    (remedy,) = padding_moves(scene({"slots": slots, "lens": ints(1, 2, 9, 9)}), AT, [0])
    assert told([remedy]) == [("slots", Cause.PADDING, "padding rows 2 and up")]
    assert remedy.right is not None and remedy.right.tolist() == [3, 3] and is_view(remedy.buffer, slots)


def test_a_live_row_that_addresses_it_too_is_not_taken() -> None:
    (remedy,) = padding_moves(scene({"slots": ints(0, 5, 0, 0)}), AT, [0])
    assert remedy.right is not None and remedy.right.tolist() == [5, 5]
    assert padding_moves(scene({"slots": ints(0, 0, 0, 0)}), AT, [0]) == []


def test_padding_elsewhere_floats_and_masks_are_not_moved() -> None:
    zeros = torch.zeros(4)
    around = scene({"slots": ints(3, 5, 8, 8), "x": zeros, "mask": zeros.bool(), "short": ints(0, 0)})
    assert padding_moves(around, AT, [0]) == []
    assert padding_moves(scene({"slots": ints(3, 5, 0, 0)}), AT, []) == []


# what the old graph had, over what a new one has


def test_a_transplant_takes_over_what_differs() -> None:
    now = ints(5, 7, 8, 8)
    (remedy,) = transplants(scene({}, {"slots": ints(5, 6, 8, 8)}), scene({}, {"slots": now}), AT)
    assert told([remedy]) == [("slots", Cause.NOT_REFRESHED, "row 1")]
    assert remedy.buffer is now
    assert remedy.right is not None and remedy.right.tolist() == [5, 6, 8, 8]
    assert remedy.held is not None and remedy.held.tolist() == [5, 7, 8, 8]


def test_transplants_tell_tails_and_moved_names_apart() -> None:
    old = scene({}, {"lens": ints(1, 2, 9, 9), "slots": ints(5, 6, 8, 8)}, moved={"slots": ints(1)})
    new = scene({}, {"lens": ints(1, 2, 0, 0), "slots": ints(5, 7, 8, 8)})
    assert told(transplants(old, new, AT)) == [
        ("lens", Cause.STALE_TAIL, "padding rows 2 and up"),
        ("slots", Cause.REBOUND, "row 1"),
    ]


def test_equal_unlike_and_unknown_buffers_are_not_transplanted() -> None:
    old = scene({}, {"a": ints(1), "b": ints(1, 2), "c": ints(1), "d": ints(1)})
    assert transplants(old, scene({}, {"a": ints(1), "b": ints(1), "c": ints(2).int()}), AT) == []


# names that belong to other memory


def test_the_new_owners_value_goes_into_the_captured_memory() -> None:
    weight, slots, step = torch.zeros(2), ints(1, 2), ints(4)
    around = scene({"slots": slots}, {"model.weight": weight, "step": step})
    around.moved.update({"slots": ints(3, 4), "model.weight": torch.ones(2), "step": ints(5)})
    around.weights = frozenset({"model.weight"})
    found = moved_remedies(around)
    assert [(remedy.name, remedy.kind) for remedy in found] == [
        ("slots", "input"),
        ("model.weight", "weight"),
        ("step", "root"),
    ]
    assert [remedy.accused for remedy in found] == ["input", "weight", "buffer"]
    assert all(remedy.cause is Cause.REBOUND for remedy in found)
    assert is_view(found[1].buffer, weight) and found[1].right is around.moved["model.weight"]


def test_a_new_owner_with_the_same_value_or_that_does_not_fit_is_no_remedy() -> None:
    around = scene({"a": ints(1, 2), "b": ints(1), "c": ints(1)})
    around.moved.update({"a": ints(1, 2), "b": ints(1, 2), "c": ints(2).int()})
    assert moved_remedies(around) == []
    around.moved["a"] = ints(9)
    (remedy,) = moved_remedies(around)
    assert remedy.held is not None and remedy.held.tolist() == [1]


# which of them heals


def remedy(name: str) -> Remedy:
    """Of no effect."""
    return Remedy(Cause.NOT_REFRESHED, name, "input")


def healer(*needed: str) -> tuple[Callable[[Sequence[Remedy]], bool], list[list[str]]]:
    """Heals if all the needed are there; with the trials."""
    trials: list[list[str]] = []

    def heals(some: Sequence[Remedy]) -> bool:
        trials.append([remedy.name for remedy in some])
        return set(needed) <= set(trials[-1])

    return heals, trials


def test_the_first_that_heals_alone() -> None:
    heals, trials = healer("b")
    assert [r.name for r in first_healer([remedy("a"), remedy("b"), remedy("c")], heals)] == ["b"]
    assert trials == [["a"], ["b"]]


def test_the_smallest_set_where_none_heals_alone() -> None:
    heals, _ = healer("a", "c")
    assert [r.name for r in first_healer([remedy(name) for name in "abcd"], heals)] == ["a", "c"]


def test_nothing_heals() -> None:
    heals, trials = healer("z")
    assert first_healer([remedy("a"), remedy("b")], heals) == []
    assert trials == [["a"], ["b"], ["a", "b"]]
    assert first_healer([remedy("a")], heals) == [] and first_healer([], heals) == []


def test_a_set_has_the_first_remedy_of_each_buffer() -> None:
    heals, trials = healer("z")
    first, other = remedy("a"), remedy("a")
    assert first_healer([first, other, remedy("b")], heals) == []
    assert trials[-1] == ["a", "b"]
    (chosen, _) = first_healer([first, other, remedy("b")], lambda some: len(some) > 1)
    assert chosen is first


def test_bytes_of_a_remedy() -> None:
    live = LiveGraph(0, weakref.ref(set()))
    assert (
        Remedy(Cause.BAKED, "k", "parameter", edits=((live, Edit(0, 0, b"1234")), (live, Edit(1, 0, b"12")))).bytes == 6
    )


# mending for one run


def stale_slots(self: Any, static: Any, fresh: Any) -> None:
    """Staging that forgets the slots."""
    static["x"][: len(fresh["x"])].copy_(fresh["x"])


@pytest.fixture
def stale(loop_target: Make, arms_of: Make) -> tuple[Arms, Planned]:
    """A step whose slots are those of the padding."""
    arms, plan = arms_of(loop_target(update=stale_slots), 2)
    arms.save()
    return arms, plan[0]


def test_a_mended_replay_is_right_and_leaves_no_trace(stale: tuple[Arms, Planned]) -> None:
    arms, at = stale
    eager, bad = arms.run(Arm.EAGER, at), arms.run(Arm.REPLAYED, at)
    assert not torch.equal(bad.outputs["y"], eager.outputs["y"])
    around = look(arms, at)
    (remedy,) = input_remedies(around, arms.subject.truth(at), at, True)
    mended = try_out(arms, at, [remedy])
    assert torch.equal(mended.outputs["y"], eager.outputs["y"])
    assert all(torch.equal(mended.state[e][: 8 * 8], eager.state[e][: 8 * 8]) for e in eager.state)
    assert remedy.buffer is not None and remedy.held is not None
    assert torch.equal(remedy.buffer, remedy.held), "the buffer is as the runner left it"
    assert torch.equal(arms.run(Arm.REPLAYED, at).outputs["y"], bad.outputs["y"])


def test_all_is_put_back_when_the_run_raises(stale: tuple[Arms, Planned]) -> None:
    arms, at = stale
    held = arms.subject.held(at)[0].tensors["slots"]
    remedy = Remedy(Cause.NOT_REFRESHED, "slots", "input", buffer=held, right=torch.zeros_like(held))
    with pytest.raises(ZeroDivisionError), applied(arms, [remedy]):
        arms.subject.replayed(at)
        assert held.tolist() == [0, 0]
        raise ZeroDivisionError
    assert held.tolist() == [8, 8]
    arms.subject.replayed(at)
    assert held.tolist() == [8, 8], "nothing listens any more"


def test_several_replays_in_one_step_are_all_mended(backend: Backend, stale: tuple[Arms, Planned]) -> None:
    arms, at = stale
    held = arms.subject.held(at)[0].tensors["slots"]
    remedy = Remedy(Cause.NOT_REFRESHED, "slots", "input", buffer=held, right=torch.zeros_like(held))
    seen = []
    with applied(arms, [remedy]), backend.log.listening(replaying=lambda live: seen.append(held.tolist())):
        arms.subject.replayed(at)
        held.fill_(3)
        arms.subject.replayed(at)
    assert seen == [[0, 0], [0, 0]] and held.tolist() == [8, 8]
