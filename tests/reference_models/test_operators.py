"""Each operator against float64, on ragged shapes; and what a captured graph makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models import operators as ops


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """||out - expected|| / ||expected||, in float64."""
    expected = expected.to(out.device)
    return float((out.double() - expected).norm() / expected.norm())


# rms_norm


@pytest.mark.parametrize(("rows", "hidden"), [(1, 32), (3, 256), (16, 4096), (5, 8200), (2, 8)])
def test_rms_norm(place: Any, rows: int, hidden: int) -> None:
    x, weight = place.randn(rows, hidden, seed=1) * 3, place.randn(hidden, seed=2)
    place.poison()
    out = ops.rms_norm(x, weight, 1e-5)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert out.dtype == x.dtype and out.shape == x.shape
    assert error(out, expected) < place.error


def test_rms_norm_of_rows_that_lie_apart(place: Any) -> None:
    x = place.randn(4, 96, seed=3)[:, 32:64]
    weight = place.randn(32, seed=4)
    assert torch.equal(ops.rms_norm(x, weight, 1e-6), ops.rms_norm(x.contiguous(), weight, 1e-6))


# rotary_embedding


def rotated(qk: torch.Tensor, positions: list[int], base: float) -> torch.Tensor:
    """Each pair (i, i + half) as a complex number, turned by position * base^(-2i/dim)."""
    half = qk.size(-1) // 2
    pairs = torch.complex(qk.double()[..., :half], qk.double()[..., half:])
    frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.tensor(positions, dtype=torch.float64)[:, None] * frequencies
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None].to(pairs.device)
    return torch.cat((turned.real, turned.imag), dim=-1)


def cos_sin(place: Any, longest: int, dim: int, base: float = 100.0) -> torch.Tensor:
    frequencies = base ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    angles = torch.outer(torch.arange(longest, dtype=torch.float64), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float().to(place.device)


@pytest.mark.parametrize(("heads", "dim"), [(6, 16), (6, 64), (10, 128), (40, 32)])
@pytest.mark.parametrize("offset", [0, 5])
def test_rotary_embedding(place: Any, heads: int, dim: int, offset: int) -> None:
    positions = [0, 1, 99 - offset, 17]
    qkv = place.randn(len(positions), heads + 2, dim, seed=5)
    before = qkv.clone()
    ops.rotary_embedding(qkv[:, :heads], place.ints(positions, torch.int64), cos_sin(place, 100, dim), offset)
    expected = rotated(before[:, :heads], [p + offset for p in positions], 100.0)
    assert error(qkv[:, :heads], expected) < place.error
    assert torch.equal(qkv[:, heads:], before[:, heads:]), "values lie beside query and key, and are not rotated"


# reshape_and_cache


@pytest.mark.parametrize(("heads", "dim"), [(2, 16), (2, 64), (8, 128)])
def test_reshape_and_cache(place: Any, heads: int, dim: int) -> None:
    slots = [37, -1, 0, 16, -1, 79]
    qkv = place.randn(len(slots), 3 * heads, dim, seed=6)
    key, value = qkv[:, heads : 2 * heads], qkv[:, 2 * heads :]
    caches = [place.randn(5, 16, heads, dim, seed=seed) for seed in (7, 8)]
    expected = [cache.clone() for cache in caches]
    for cache, new in zip(expected, (key, value), strict=True):
        for row, slot in enumerate(slots):
            if slot >= 0:
                cache[slot // 16, slot % 16] = new[row]
    ops.reshape_and_cache(key, value, *caches, place.ints(slots))
    assert torch.equal(caches[0], expected[0]) and torch.equal(caches[1], expected[1])


# paged_attention_decode


def attended(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: list[list[int]],
    lengths: list[int],
    scale: float,
) -> torch.Tensor:
    """Token by token, in float64."""
    block_size, kv_heads = keys.shape[1:3]
    out = torch.zeros(query.shape, dtype=torch.float64)
    for row, length in enumerate(lengths):
        if length:
            places = [(table[row][t // block_size], t % block_size) for t in range(length)]
            k = torch.stack([keys[block, at].double() for block, at in places]).cpu()
            v = torch.stack([values[block, at].double() for block, at in places]).cpu()
            for head in range(query.size(1)):
                shared = head // (query.size(1) // kv_heads)
                weights = (k[:, shared] @ query[row, head].double().cpu() * scale).softmax(0)
                out[row, head] = weights @ v[:, shared]
    return out


class Paged:
    """A cache in which only what the lengths cover holds numbers; all else is NaN."""

    def __init__(self, place: Any, lengths: list[int], kv_heads: int, dim: int, block_size: int = 16) -> None:
        self.lengths = lengths
        width = max(-(-length // block_size) for length in lengths) + 1
        order = torch.randperm(len(lengths) * width, generator=torch.Generator().manual_seed(9))
        self.table = order.view(len(lengths), width).tolist()
        shape = (len(lengths) * width, block_size, kv_heads, dim)
        self.keys, self.values = place.randn(*shape, seed=10), place.randn(*shape, seed=11)
        for row, length in enumerate(lengths):
            for token in range(length, width * block_size):
                at = (self.table[row][token // block_size], token % block_size)
                self.keys[at], self.values[at] = float("nan"), float("nan")
        self.block_table, self.seq_lens = place.ints(self.table), place.ints(lengths)

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """The operator."""
        out: torch.Tensor = ops.paged_attention_decode(
            query, self.keys, self.values, self.block_table, self.seq_lens, scale
        )
        return out


RAGGED = [1, 15, 16, 17, 0, 31, 32, 33, 100, 128, 2]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(4, 2, 16), (8, 8, 32), (4, 2, 64), (8, 1, 128), (12, 4, 128), (2, 1, 256)]
)
def test_paged_attention_of_ragged_lengths(place: Any, heads: int, kv_heads: int, dim: int) -> None:
    paged = Paged(place, RAGGED, kv_heads, dim)
    query = place.randn(len(RAGGED), heads + 3, dim, seed=12)[:, :heads]  # rows lie apart
    place.poison()
    out = paged.attend(query, dim**-0.5)
    assert error(out, attended(query, paged.keys, paged.values, paged.table, RAGGED, dim**-0.5)) < place.error
    assert not out[RAGGED.index(0)].any(), "a row without tokens gives zeros"


def test_paged_attention_of_a_long_request_with_sharp_scores(place: Any) -> None:
    lengths = [1500, 3]
    paged = Paged(place, lengths, kv_heads=1, dim=64)
    query = place.randn(2, 4, 64, seed=13) * 4
    out = paged.attend(query, 0.5)
    assert error(out, attended(query, paged.keys, paged.values, paged.table, lengths, 0.5)) < place.error


@pytest.mark.parametrize("block_size", [8, 32])
def test_paged_attention_of_other_block_sizes(place: Any, block_size: int) -> None:
    lengths = [7, 8, 9, 33]
    paged = Paged(place, lengths, kv_heads=2, dim=64, block_size=block_size)
    query = place.randn(4, 4, 64, seed=14)
    expected = attended(query, paged.keys, paged.values, paged.table, lengths, 0.125)
    assert error(paged.attend(query, 0.125), expected) < place.error


def test_paged_attention_reads_no_further_than_the_table(place: Any) -> None:
    paged = Paged(place, [16, 16], kv_heads=2, dim=16)
    query = place.randn(2, 4, 16, seed=15)
    expected = paged.attend(query, 0.25)
    paged.block_table = paged.block_table[:, :1]  # one column of a wider table
    paged.seq_lens.fill_(1_000_000)
    assert torch.equal(paged.attend(query, 0.25), expected)


def test_a_rows_attention_does_not_depend_on_its_neighbours(place: Any) -> None:
    paged = Paged(place, RAGGED, kv_heads=2, dim=64)
    query = place.randn(len(RAGGED), 4, 64, seed=16)
    out = paged.attend(query, 0.125)
    for row in range(len(RAGGED)):
        alone = ops.paged_attention_decode(
            query[row : row + 1],
            paged.keys,
            paged.values,
            paged.block_table[row : row + 1],
            paged.seq_lens[row : row + 1],
            0.125,
        )
        assert torch.equal(alone[0], out[row])


# silu_and_mul


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 512), (16, 4000), (2, 8)])
def test_silu_and_mul(place: Any, rows: int, width: int) -> None:
    gate_up = place.randn(rows, 2 * width, seed=17) * 4
    place.poison()
    gate, up = gate_up.double().chunk(2, dim=-1)
    out = ops.silu_and_mul(gate_up)
    assert error(out, gate / (1 + (-gate).exp()) * up) < place.error


def test_silu_and_mul_of_extreme_gates(place: Any) -> None:
    gate_up = torch.ones(1, 16, device=place.device, dtype=place.dtype)
    gate_up[0, :4] = torch.tensor([-1000.0, 1000.0, -80.0, 0.0])
    out = ops.silu_and_mul(gate_up)
    assert out[0, :2].tolist() == [0.0, 1000.0] and out.isfinite().all() and out[0, 3] == 0


# all of them


def calls(place: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Operator and arguments, by name."""
    paged = Paged(place, [17, 0, 5, 32], kv_heads=2, dim=64)
    cached = (paged.keys.nan_to_num(), paged.values.nan_to_num())
    qkv = place.randn(4, 8, 64, seed=18)
    slots = place.ints([3, -1, 40, 64])
    table = cos_sin(place, 100, 64)
    return {
        "rms_norm": (ops.rms_norm, (place.randn(4, 256, seed=19), place.randn(256, seed=20), 1e-6)),
        "rotary_embedding": (ops.rotary_embedding, (qkv[:, :6], place.ints([0, 9, 4, 99], torch.int64), table)),
        "reshape_and_cache": (ops.reshape_and_cache, (qkv[:, 4:6], qkv[:, 6:], *cached, slots)),
        "paged_attention_decode": (
            ops.paged_attention_decode,
            (qkv[:, :4], *cached, paged.block_table, paged.seq_lens, 0.125),
        ),
        "silu_and_mul": (ops.silu_and_mul, (place.randn(4, 512, seed=21),)),
    }


OPERATORS = ["rms_norm", "rotary_embedding", "reshape_and_cache", "paged_attention_decode", "silu_and_mul"]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_registered_right(place: Any, name: str) -> None:
    operator, arguments = calls(place)[name]
    torch.library.opcheck(operator, arguments)


@pytest.mark.parametrize("name", OPERATORS)
def test_no_rows(place: Any, name: str) -> None:
    operator, arguments = calls(place)[name]
    caches = {id(a) for a in arguments if isinstance(a, torch.Tensor) and a.shape[:1] != (4,)}
    operator(*(a[:0] if isinstance(a, torch.Tensor) and id(a) not in caches else a for a in arguments))


def effect(operator: Callable[..., Any], arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """What a call returns and what it leaves in its arguments; it starts from copies."""
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    returned = operator(*own)
    return [t for t in (returned, *own) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_input_gives_the_same_bits(place: Any, name: str) -> None:
    operator, arguments = calls(place)[name]
    first = effect(operator, arguments)
    for _ in range(5):
        place.poison()
        assert all(torch.equal(a, b) for a, b in zip(effect(operator, arguments), first, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", OPERATORS)
def test_a_graph_gives_the_bits_of_eager_on_new_values(name: str, cuda: Any) -> None:
    operator, arguments = calls(cuda)[name]
    expected = effect(operator, arguments)

    static = [torch.zeros_like(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    operator(*static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        returned = operator(*static)
    for buffer, value in zip(static, arguments, strict=True):
        if isinstance(buffer, torch.Tensor):
            buffer.copy_(value)
    if isinstance(returned, torch.Tensor):
        returned.fill_(float("nan"))
    graph.replay()
    found = [t for t in (returned, *static) if isinstance(t, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_run_on_the_current_stream(name: str, cuda: Any) -> None:
    operator, arguments = calls(cuda)[name]
    expected = effect(operator, arguments)
    late = [torch.zeros_like(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)  # the arguments arrive on this stream only, and late
        for buffer, value in zip(late, arguments, strict=True):
            if isinstance(buffer, torch.Tensor):
                buffer.copy_(value)
        returned = operator(*late)
    torch.cuda.synchronize()
    found = [t for t in (returned, *late) if isinstance(t, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_what_a_kernel_cannot_take_is_refused_in_words(cuda: Any) -> None:
    x, weight = cuda.randn(4, 64, seed=22), cuda.randn(64, seed=23)
    with pytest.raises(TypeError, match=r"rms_norm on CUDA takes bfloat16, not torch\.float32"):
        ops.rms_norm(x.float(), weight, 1e-6)
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        ops.rms_norm(cuda.randn(4, 72, seed=24)[:, 1:65], weight, 1e-6)
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        ops.rms_norm(x[:, :60], weight[:60].contiguous(), 1e-6)
    with pytest.raises(ValueError, match="contiguous"):
        ops.silu_and_mul(x[:, :32])
    name, (_, arguments) = "reshape_and_cache", calls(cuda)["reshape_and_cache"]
    with pytest.raises(TypeError, match=f"{name} takes contiguous rows of torch.int32, not torch.int64"):
        ops.reshape_and_cache(*arguments[:4], arguments[4].long())
    with pytest.raises(TypeError, match="of strides"):
        ops.reshape_and_cache(*arguments[:4], cuda.ints([3, -1, 40, 64, 1, 1, 1, 1])[::2])
