"""The table of faults of keys, and that each and its twin stage and compute what they say."""

from __future__ import annotations

import pytest

from cudagraph_doctor import reference_models
from cudagraph_doctor.reference_models import faulty_keys
from cudagraph_doctor.reference_models.key_faults import KEY_FAULTS
from cudagraph_doctor.rules import RULES


def test_table() -> None:
    assert set(KEY_FAULTS) == set(faulty_keys.PLANTED)
    for name, fault in KEY_FAULTS.items():
        assert fault.name == name and RULES[fault.rule].check == "audit"
        assert fault.summary.endswith(".") and fault.twin.endswith(".") and fault.forms == ("loop",)
        assert fault.emulated == (not fault.why_not_emulated)


@pytest.mark.parametrize("twin", [False, True])
def test_a_grown_batch(twin: bool) -> None:
    loop = reference_models.load("loop", device="cpu", fault="grown-batch-staged-in-part", twin=twin, preset="tiny")
    assert isinstance(loop, faulty_keys.GrownBatchStagedInPart)
    small, large = loop.static_inputs(4), loop.static_inputs(8)
    assert small.block_table.data_ptr() == large.block_table.data_ptr(), "buckets share their buffers"
    loop.update(small, loop.next_inputs(0, 4))
    fresh = loop.next_inputs(0, 8)
    loop.update(large, fresh)
    width = fresh.block_table.shape[1]
    right = (large.block_table[:, :width] == fresh.block_table).all(dim=1)
    assert right.tolist() == [twin] * 3 + [True] * 5
