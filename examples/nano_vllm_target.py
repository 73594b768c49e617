"""nano-vllm as a target: its own prepare_decode, run_model and enforce_eager, with small random weights. Needs a GPU.

nano-vllm is not part of this project: clone github.com/GeeeekExplorer/nano-vllm and name its folder to Python.

    PYTHONPATH=../nano-vllm cudagraph-doctor diff examples/nano_vllm_target.py
"""

import importlib.util
import sys
import tempfile
from typing import Any
from unittest import mock

import torch
from transformers import Qwen3Config

if importlib.util.find_spec("flash_attn") is None:
    import flash_attn_stand_in

    sys.modules["flash_attn"] = flash_attn_stand_in

from nanovllm.config import Config
from nanovllm.engine.model_runner import ModelRunner, Sequence, reset_context

SHAPE = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "dtype": "bfloat16",
}  # fmt: skip


join = torch.distributed.init_process_group


def alone(backend: str, _port: str, **ranks: Any) -> None:
    """A group of one, without nano-vllm's fixed port: another process may have that."""
    join(backend, store=torch.distributed.HashStore(), **ranks)  # type: ignore[attr-defined]


def small_runner() -> ModelRunner:
    """The engine's runner around a random model, its graphs captured for 1, 2, 4, 8 and 16 rows."""
    if torch.distributed.is_initialized():  # by another one in this process
        torch.distributed.destroy_process_group()
    # its cache takes nearly all memory that it is told of
    told = mock.patch("torch.cuda.mem_get_info", return_value=(2**27, 2**27))
    with tempfile.TemporaryDirectory() as folder, told, mock.patch("torch.distributed.init_process_group", alone):
        Qwen3Config(**SHAPE).save_pretrained(folder)
        return ModelRunner(Config(folder, 512, 16, 512), 0, [])


class NanoVllm:
    batch_sizes = (1, 2, 3, 4, 5, 7, 8, 16)

    def __init__(self, device: str, seed: int = 0) -> None:
        self.seed = seed
        self.runner = small_runner()
        torch.manual_seed(seed)
        for weight in self.runner.model.parameters():
            torch.nn.init.normal_(weight, 1.0 if weight.dim() == 1 else 0.0, 0.06)

    def reset(self) -> None:
        torch.manual_seed(self.seed)
        self.runner.kv_cache.normal_()  # as if prompts had been there

    def step(self, i: int, n: int) -> torch.Tensor:
        sequences = [Sequence([(11 * i + 5 * row) % 512] * (1 + (240 + 7 * row + i) % 511)) for row in range(n)]
        for row, sequence in enumerate(sequences):  # block 0 stays free: captures write there
            sequence.block_table = [1 + 2 * row, 2 + 2 * row][: sequence.num_blocks]
        logits: torch.Tensor = self.runner.run_model(*self.runner.prepare_decode(sequences), is_prefill=False)
        reset_context()
        return logits

    def graphs(self, on: bool) -> None:
        self.runner.enforce_eager = not on

    def recapture(self) -> None:
        torch.set_default_dtype(torch.bfloat16)  # as its constructor does around the same call
        with torch.device("cuda"):
            self.runner.capture_cudagraph()
        torch.set_default_dtype(torch.float32)

    def key(self, i: int, n: int) -> int:
        return next(int(bucket) for bucket in self.runner.graph_bs if bucket >= n)


target = NanoVllm
