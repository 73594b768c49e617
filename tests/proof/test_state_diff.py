"""Which elements of the state differ, and who left them wrong: on made-up bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import torch

from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.state_diff import (
    Place,
    StateDifference,
    harmful,
    leading,
    owner,
    state_difference,
    unravel,
)

NAN = float("nan")


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its bytes."""
    return tensor.contiguous().flatten().view(torch.uint8).clone()


def whole(tensor: torch.Tensor) -> Extent:
    """All of its memory."""
    return Extent(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def differ(
    before: torch.Tensor,
    reference: torch.Tensor,
    result: torch.Tensor,
    reserved: Iterable[int] = (),
    names: Mapping[str, torch.Tensor] | None = None,
    extent: Extent | None = None,
) -> StateDifference:
    """The difference of `result` from `reference`, in the memory of `before`, which is named "cache"."""
    at = extent or whole(before)
    cut = slice(at.address - before.data_ptr(), at.address - before.data_ptr() + at.bytes)
    was, ref, new = ({at: raw(tensor)[cut]} for tensor in (before, reference, result))
    return state_difference(was, ref, new, {"cache": before} if names is None else names, [(before, list(reserved))])


def counts(found: StateDifference) -> tuple[int, int, int]:
    """(extra, missing, other)."""
    return found.extra, found.missing, found.other


def changed(tensor: torch.Tensor, index: int | tuple[int, ...], value: float) -> torch.Tensor:
    """A copy with one element (or row) changed."""
    copy = tensor.clone()
    copy[index] = value
    return copy


# who wrote


def test_equal_state() -> None:
    found = differ(torch.zeros(4), torch.ones(4), torch.ones(4))
    assert found == StateDifference()


def test_extra_is_what_eager_leaves_alone() -> None:
    before = torch.zeros(6, 2)
    found = differ(before, before, changed(before, 3, 7.0))
    assert counts(found) == (2, 0, 0) and found.wrong == 2 and found.level is Level.LARGE
    assert found.places == [Place("cache", (3,), 3, "extra")]
    assert str(found) == "state cache: elements 2 written that eager leaves alone"


def test_missing_is_what_the_graph_leaves_alone() -> None:
    before = torch.zeros(6, 2)
    found = differ(before, changed(before, 2, 7.0), before)
    assert counts(found) == (0, 2, 0)
    assert [place.kind for place in found.places] == ["missing"]


def test_other_values_are_written_by_both() -> None:
    before = torch.zeros(6, 2)
    found = differ(before, changed(before, 2, 7.0), changed(before, 2, 8.0))
    assert counts(found) == (0, 0, 2)
    assert [place.kind for place in found.places] == ["other"]


def test_a_write_that_went_elsewhere_is_extra_and_missing() -> None:
    before = torch.zeros(6, 2)
    found = differ(before, changed(before, 5, 7.0), changed(before, 0, 7.0))
    assert counts(found) == (2, 2, 0)
    assert {(place.linear, place.kind) for place in found.places} == {(0, "extra"), (5, "missing")}


def test_the_slot_of_a_paged_cache() -> None:
    assert [leading(torch.Size(shape)) for shape in ((9,), (9, 2), (5, 4, 2), (5, 4, 2, 3), (2, 5, 4, 2, 3))] == [
        1,
        1,
        1,
        2,
        3,
    ]
    before = torch.zeros(5, 4, 2, 3)
    found = differ(before, before, changed(before, (3, 1, 0, 2), 1.0))
    assert found.places == [Place("cache", (3, 1), 13, "extra")]


def test_the_slot_of_a_cache_of_all_layers_is_counted_within_its_layer() -> None:
    before = torch.zeros(2, 5, 4, 2, 3)
    found = differ(before, before, changed(before, (1, 3, 1, 0, 2), 1.0))
    assert found.places == [Place("cache", (1, 3, 1), 13, "extra")]
    assert unravel(13, torch.Size((5, 4))) == (3, 1) and unravel(7, torch.Size((9,))) == (7,)


# how much


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_rounding_is_small_and_not_suspicious(dtype: torch.dtype) -> None:
    before = torch.zeros(8, dtype=dtype)
    reference = torch.ones(8).to(dtype)
    result = reference.clone()
    result.view(torch.uint8)[0] ^= 1
    found = differ(before, reference, result)
    assert (found.level, found.other, found.wrong) == (Level.SMALL, 1, 0)
    assert found.suspicious == {} and found.places == []


def test_integers_have_no_rounding() -> None:
    before = torch.zeros(4, dtype=torch.int64)
    found = differ(before, before + 1000, before + 1001)
    assert (found.level, found.wrong) == (Level.LARGE, 4)


def test_nan_of_other_bits_is_no_other_value_but_a_number_is() -> None:
    before = torch.zeros(3, dtype=torch.bfloat16)
    reference = torch.tensor([NAN, NAN, 1.0], dtype=torch.bfloat16)
    result = reference.clone()
    result.view(torch.int16)[0] ^= 1
    assert differ(before, reference, result).wrong == 0
    found = differ(before, reference, changed(reference, 1, 2.0))
    assert found.wrong == 1 and found.places[0].linear == 1
    assert differ(before, reference, changed(reference, 2, NAN)).wrong == 1


def test_zeros_of_other_signs_are_equal_in_value() -> None:
    before = torch.ones(2)
    found = differ(before, torch.zeros(2), -torch.zeros(2))
    assert (found.level, found.wrong) == (Level.SMALL, 0)


# whose memory


def test_reserved_rows_may_hold_anything() -> None:
    before = torch.zeros(6, 2)
    result = changed(changed(before, 5, 7.0), 1, 7.0)
    assert differ(before, before, result, reserved=[5, 1]) == StateDifference()
    found = differ(before, before, result, reserved=[5])
    assert [place.linear for place in found.places] == [1] and found.extra == 2


def test_reserved_rows_are_so_under_whatever_name_they_are_met() -> None:
    before = torch.zeros(6, 2)
    result = changed(before, 5, 7.0)
    assert differ(before, before, result, reserved=[5], names={"flat": before.view(12)}) == StateDifference()
    assert differ(before, before, result, reserved=[5], names={}) == StateDifference()


def test_reserved_rows_that_lie_apart() -> None:
    both = torch.zeros(4, 2, 3)  # of four blocks, the keys and the values
    keys, at = both[:, 0], whole(both)

    def against(result: torch.Tensor) -> StateDifference:
        return state_difference({at: raw(both)}, {at: raw(both)}, {at: raw(result)}, {"both": both}, [(keys, [3])])

    assert against(changed(both, (3, 0), 7.0)) == StateDifference()
    assert against(changed(both, (3, 1), 7.0)).extra == 3 and against(changed(both, (2, 0), 7.0)).extra == 3


def test_memory_without_a_name_is_counted_in_words_and_left_to_the_harm_test() -> None:
    before = torch.zeros(64, dtype=torch.uint8)
    result = before.clone()
    result[[0, 1, 9, 40]] = 1
    found = differ(before, before, result, names={})
    assert (found.other, found.wrong, found.level) == (3, 3, Level.SMALL)
    assert list(found.names) == ["unnamed memory"]
    assert found.suspicious[whole(before)].nonzero().flatten().tolist() == [0, 1, 9, 40]


def test_a_part_that_no_name_covers_is_unnamed() -> None:
    before = torch.zeros(16)
    found = differ(before, before, changed(changed(before, 2, 7.0), 12, 7.0), names={"cache": before[:8]})
    assert list(found.names) == ["cache", "unnamed memory"]
    assert (found.extra, found.other) == (1, 1)


def test_what_is_told_first_does_not_hang_on_addresses() -> None:
    both = torch.zeros(2, 4)
    low, high = both[0], both[1]
    parts = {whole(part): part for part in (low, high)}
    for names in (["a", "b"], ["b", "a"]):
        tensors = {name: {"a": high, "b": low}[name] for name in names}
        was, new = ({at: raw(part + more) for at, part in parts.items()} for more in (0, 1))
        found = state_difference(was, was, new, tensors, [])
        assert list(found.names) == names and found.places[0].name == names[0]
        assert str(found).startswith(f"state {names[0]}, {names[1]}: ")


def test_an_element_is_counted_under_its_first_name_only() -> None:
    before = torch.zeros(8)
    result = changed(changed(before, 1, 7.0), 6, 7.0)
    found = differ(before, before, result, names={"half": before[:4], "cache": before, "again": before[2:]})
    assert list(found.names) == ["half", "cache"] and found.extra == 2
    assert [(p.name, p.linear) for p in found.places] == [("half", 1), ("cache", 6)]


def test_views_that_are_not_contiguous_name_nothing() -> None:
    before = torch.zeros(4, 4)
    assert list(differ(before, before, before + 1, names={"turned": before.T}).names) == ["unnamed memory"]


def test_an_extent_that_begins_and_ends_inside_elements() -> None:
    before = torch.zeros(8, dtype=torch.int64)
    result = before + 1
    result.view(torch.uint8)[6] = 1  # the part of the first element that the extent holds
    found = differ(before, before, result, extent=Extent(before.data_ptr() + 6, 8 * 5 + 3))
    # elements 1 to 5 are whole; of 0 there are two bytes, of 6 one
    assert [place.linear for place in found.places] == [1, 2, 3, 4, 5]
    assert (found.extra, found.other, list(found.names)) == (5, 2, ["cache", "unnamed memory"])


def test_places_are_numbered_from_the_start_of_the_tensor() -> None:
    before = torch.zeros(8, 2)
    found = differ(before, before, changed(before, 6, 1.0), extent=Extent(before.data_ptr() + 32, 32))
    assert found.places == [Place("cache", (6,), 6, "extra")]


def test_extents_that_one_side_lacks_are_not_compared() -> None:
    before = torch.zeros(4)
    at = whole(before)
    assert state_difference({at: raw(before)}, {at: raw(before + 1)}, {}, {"cache": before}, []).level is Level.EQUAL


def test_the_message_names_two_tensors_and_counts_the_others() -> None:
    found = StateDifference(Level.LARGE, missing=1, other=2, names=dict.fromkeys("abcd"))
    assert str(found) == "state a, b and 2 more: elements 1 not written, 2 written with other values"


# what does harm


def test_only_suspicious_bytes_are_taken_over() -> None:
    before = torch.zeros(3)
    reference, result = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0 + 2**-20, 5.0, 1.0])
    at = whole(before)
    found = differ(before, reference, result)
    mixed = harmful({at: raw(reference)}, {at: raw(result)}, found)
    assert mixed[at].view(torch.float32).tolist() == [1.0, 5.0, 1.0]


def test_extents_without_suspicion_stay_the_references() -> None:
    at = Extent(0, 4)
    reference = {at: torch.zeros(4, dtype=torch.uint8)}
    assert harmful(reference, {at: torch.ones(4, dtype=torch.uint8)}, StateDifference()) == reference


# whose slot


def test_the_input_that_holds_the_slot_is_named_with_its_row() -> None:
    place = Place("cache", (2, 1), 9, "extra")
    inputs = {"positions": torch.tensor([9, 0]), "slot_mapping": torch.tensor([4, 9]), "x": torch.tensor([9.0, 9.0])}
    assert owner(place, inputs) == "slot 9: row 1 of slot_mapping"


def test_the_block_counts_where_no_slot_does() -> None:
    place = Place("cache", (2, 1), 9, "extra")
    assert owner(place, {"block_table": torch.tensor([[0, 1], [2, 3]])}) == "block 2: row 1 of block_table"
    assert owner(place, {"block_table": torch.tensor([[0, 1]]), "mask": torch.tensor([True])}) == ""


def test_a_flat_cache_has_no_blocks() -> None:
    assert owner(Place("cache", (2,), 2, "extra"), {"block_table": torch.tensor([[2]])}).startswith("slot 2: row 0")
    assert owner(Place("cache", (2,), 2, "extra"), {}) == ""


def test_floats_masks_and_scalars_own_no_slot() -> None:
    others = {"slots": torch.tensor([1.0]), "table": torch.tensor([True]), "index": torch.tensor(1)}
    assert owner(Place("cache", (1,), 1, "extra"), others) == ""
