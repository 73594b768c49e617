"""The model: decoding token by token through the paged cache against a dense one in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.decode import PRESETS, Decoder
from cudagraph_doctor.reference_models.inputs import DecodeInputs, padding, true_inputs


def decoder(place: Any, seed: int = 0) -> Decoder:
    return Decoder(PRESETS["tiny"], place.device, place.dtype, seed)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + PRESETS["tiny"].rms_eps).sqrt() * weight


def turn(x: torch.Tensor, base: float) -> torch.Tensor:
    """x (tokens, heads, dim), token t turned by position t."""
    half = x.size(-1) // 2
    angles = torch.outer(torch.arange(len(x)).double(), base ** (-torch.arange(half).double() / half))
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat((turned.real, turned.imag), dim=-1)


def dense(model: Decoder, tokens: list[int]) -> torch.Tensor:
    """Logits of the last of `tokens`, all of them at once, causal, float64, with no operator of ours."""
    config = PRESETS["tiny"]
    weights = {name: weight.detach().cpu().double() for name, weight in model.named_parameters()}
    group = config.num_heads // config.num_kv_heads
    hidden = weights["embed.weight"][tokens]
    hidden_mask = torch.ones(len(tokens), len(tokens)).triu(1).bool()
    for layer in range(config.num_layers):
        own = {n.removeprefix(f"layers.{layer}."): w for n, w in weights.items() if n.startswith(f"layers.{layer}.")}
        qkv = (norm(hidden, own["input_norm.weight"]) @ own["attn.qkv.weight"].T).unflatten(-1, (-1, config.head_dim))
        q, k, v = qkv.split([config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        q, k = turn(q, config.rope_base), turn(k, config.rope_base)
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / config.head_dim**0.5
        attended = scores.masked_fill(hidden_mask, -torch.inf).softmax(-1) @ v.transpose(0, 1)
        hidden = hidden + attended.transpose(0, 1).flatten(1) @ own["attn.o_proj.weight"].T
        gate, up = (norm(hidden, own["post_attn_norm.weight"]) @ own["mlp.gate_up.weight"].T).chunk(2, dim=-1)
        hidden = hidden + (gate * gate.sigmoid() * up) @ own["mlp.down.weight"].T
    return norm(hidden, weights["norm.weight"])[-1] @ weights["lm_head.weight"].T


def test_decoding_token_by_token_is_attention_over_all_tokens(place: Any) -> None:
    model = decoder(place)
    draw = torch.Generator().manual_seed(3)
    scripts = [torch.randint(64, (n,), generator=draw).tolist() for n in (35, 20)]
    tables = [[7, 3, 40], [12, 5, 0]]
    starts = [0, 15]  # the second request joins when the first has 15 tokens
    for step in range(35):
        live = [r for r in (0, 1) if starts[r] <= step < starts[r] + len(scripts[r])]
        at = [step - starts[r] for r in live]
        outputs = model(
            DecodeInputs(
                input_ids=place.ints([scripts[r][t] for r, t in zip(live, at, strict=True)], torch.int64),
                positions=place.ints(at, torch.int64),
                slot_mapping=place.ints([tables[r][t // 16] * 16 + t % 16 for r, t in zip(live, at, strict=True)]),
                block_table=place.ints([tables[r] for r in live]),
                seq_lens=place.ints([t + 1 for t in at]),
            )
        )
    assert live == [0, 1]
    bound = 1e-5 if place.dtype is torch.float32 else 5e-2
    for row, script in enumerate(scripts):
        expected = dense(model, script)
        assert (outputs["logits"][row].double().cpu() - expected).norm() / expected.norm() < bound
    assert torch.equal(outputs["tokens"], outputs["logits"].argmax(dim=-1))


def test_padding_rows_are_finite_and_write_nothing(place: Any) -> None:
    model = decoder(place)
    before = {name: cache.clone() for name, cache in model.caches().items()}
    outputs = model(padding(4, place.device))
    assert outputs["logits"].isfinite().all() and outputs["logits"].shape == (4, 64)
    assert all(torch.equal(cache, before[name]) for name, cache in model.caches().items())


def test_a_step_writes_its_slots_and_no_others(place: Any) -> None:
    model = decoder(place)
    before = {name: cache.clone() for name, cache in model.caches().items()}
    inputs = true_inputs(2, 5, 64, 48, 0, place.device)
    model(inputs)
    for name, cache in model.caches().items():
        differs = (cache != before[name]).flatten(0, 1).any(-1).any(-1)
        assert differs.nonzero().flatten().tolist() == sorted(inputs.slot_mapping.tolist()), name


def test_the_caches_are_reset_in_place_to_the_same_noise(place: Any) -> None:
    model = decoder(place)
    addresses = {name: cache.data_ptr() for name, cache in model.caches().items()}
    before = {name: cache.clone() for name, cache in model.caches().items()}
    for cache in model.caches().values():
        cache.zero_()
    model.reset_caches(0)
    assert list(model.caches()) == [f"layers.{i}.attn.{kind}_cache" for i in range(2) for kind in ("key", "value")]
    for name, cache in model.caches().items():
        assert cache.data_ptr() == addresses[name] and torch.equal(cache, before[name])
        assert cache.double().std().item() == pytest.approx(1.0, abs=0.05)


def test_weights_come_from_the_seed(place: Any) -> None:
    first, again, other = decoder(place), decoder(place), decoder(place, seed=1)
    for name, weight in first.named_parameters():
        assert torch.equal(weight, dict(again.named_parameters())[name])
        assert weight.dim() == 1 or not torch.equal(weight, dict(other.named_parameters())[name])
        assert not weight.requires_grad


def test_rotary_is_one_module_shared_by_all_layers(place: Any) -> None:
    model = decoder(place)
    assert len({id(m) for m in model.modules() if type(m).__name__ == "Rotary"}) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fit_the_kernels(preset: str) -> None:
    config = PRESETS[preset]
    assert config.num_heads % config.num_kv_heads == 0
    assert config.head_dim in (16, 32, 64, 128, 256)
    assert config.hidden_size % 8 == 0 and config.intermediate_size % 8 == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_large_launches_as_many_kernels_as_a_large_model(rows: int) -> None:
    from cuda.bindings import driver

    model = Decoder(PRESETS["large"], "cuda", torch.bfloat16, 0)
    static = padding(rows, "cuda")
    model(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        model(static)
    handle = driver.CUgraph(graph.raw_cuda_graph())
    count = driver.cuGraphGetNodes(handle, 0)[-1]
    nodes = driver.cuGraphGetNodes(handle, count)[1]
    kinds = [driver.cuGraphNodeGetType(node)[1] for node in nodes]
    kernels = kinds.count(driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL)
    print(f"large, {rows} rows: {kernels} kernel nodes of {len(kinds)}")
    assert 1750 <= kernels <= 1790
