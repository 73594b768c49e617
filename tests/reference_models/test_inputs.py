"""The tensors of a step, and what staging leaves in the static ones."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from cudagraph_doctor.reference_models.inputs import PADDING, TABLE_WIDTH, DecodeInputs, padding, stage, true_inputs
from cudagraph_doctor.reference_models.requests import running


def truth(step: int, rows: int) -> DecodeInputs:
    return true_inputs(step, rows, vocab_size=64, num_blocks=48, seed=0, device="cpu:0")


def same(a: DecodeInputs, b: DecodeInputs) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in PADDING)


def test_padding_knows_every_input() -> None:
    assert [field.name for field in fields(DecodeInputs)] == list(PADDING)
    for name, value in PADDING.items():
        assert (getattr(padding(3, "cpu:0"), name) == value).all()


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_true_inputs_are_the_requests(rows: int) -> None:
    inputs, requests = truth(5, rows), running(5, rows, 0, 47)
    assert inputs.seq_lens.tolist() == [r.length for r in requests]
    assert inputs.positions.tolist() == [r.length - 1 for r in requests]
    assert inputs.slot_mapping.tolist() == [r.slot for r in requests]
    assert inputs.block_table.shape == (rows, max(len(r.blocks) for r in requests))
    for row, request in zip(inputs.block_table.tolist(), requests, strict=True):
        assert row[: len(request.blocks)] == list(request.blocks) and not any(row[len(request.blocks) :])
    assert ((inputs.input_ids >= 0) & (inputs.input_ids < 64)).all()


def test_true_inputs_are_pure() -> None:
    assert same(truth(9, 4), truth(9, 4))
    assert not same(truth(9, 4), truth(10, 4))


@pytest.mark.parametrize(("before", "rows"), [(16, 3), (3, 16), (16, 16), (16, 1)])
def test_what_was_staged_before_leaves_nothing_behind(before: int, rows: int) -> None:
    used, unused = padding(16, "cpu:0"), padding(16, "cpu:0")
    stage(used, truth(40, before))
    stage(used, truth(2, rows))
    stage(unused, truth(2, rows))
    assert same(used, unused)
    fresh = truth(2, rows)
    assert same(used.rows(rows), DecodeInputs(**{n: getattr(unused, n)[:rows] for n in PADDING}))
    assert torch.equal(used.block_table[:rows, : fresh.block_table.size(1)], fresh.block_table)
    for name in ("input_ids", "positions", "slot_mapping", "seq_lens"):
        assert torch.equal(getattr(used, name)[:rows], getattr(fresh, name))
        assert (getattr(used, name)[rows:] == PADDING[name]).all()


def test_staging_keeps_the_addresses() -> None:
    static = padding(4, "cpu:0")
    before = {name: getattr(static, name).data_ptr() for name in PADDING}
    stage(static, truth(0, 3))
    assert {name: getattr(static, name).data_ptr() for name in PADDING} == before


def test_rows_are_views() -> None:
    static = padding(4, "cpu:0")
    static.rows(2).seq_lens.fill_(5)
    assert static.seq_lens.tolist() == [5, 5, 0, 0]
    assert static.rows(2).block_table.shape == (2, TABLE_WIDTH)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_pinned() -> None:
    pinned = truth(3, 2).pinned()
    assert all(getattr(pinned, name).is_pinned() for name in PADDING) and same(pinned, truth(3, 2))
