"""The reference model as an EngineTarget: a small engine with its own runner, captures and staging.

One set of wide static inputs would make the host wait for the step before; there are two, used in turn. A copy stream
fills one while the graph that reads the other still runs, and two events a set keep the order: `staged` (the copy is
done, the graph may read) and `consumed` (the graph is done, the copy may overwrite). Next on the path: `faults.py`.
"""

from __future__ import annotations

from typing import Any

import nvtx
import torch

from cudagraph_doctor.reference_models.decode import Decoder, DecoderConfig
from cudagraph_doctor.reference_models.inputs import DecodeInputs, padding, stage, true_inputs
from cudagraph_doctor.reference_models.loop import BUCKETS
from cudagraph_doctor.reference_models.requests import MAX_ROWS

HALVES = ("even", "odd")
"""The two sets of static inputs: one for even steps, one for odd ones."""


class ReferenceEngine:
    """Prepares a step on the host, looks its graph up by batch size, stages, replays.

    Args:
        config: sizes of the model.
        device: where it runs.
        dtype: of weights and caches.
        seed: of weights, caches and tokens.
        enforce_eager: capture nothing now; `graphs(True)` makes up for it.
    """

    batch_sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 8, 15, 16)
    captured_sizes: tuple[int, ...] = tuple(BUCKETS)
    pipelined = True

    def __init__(
        self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int, *, enforce_eager: bool = False
    ) -> None:
        self.config = config
        self.device = device
        self.seed = seed
        self.model = Decoder(config, device, dtype, seed)
        self.static = {half: padding(MAX_ROWS, device) for half in HALVES}
        self.outputs = {
            "logits": torch.zeros(MAX_ROWS, config.vocab_size, device=device, dtype=dtype),
            "tokens": torch.zeros(MAX_ROWS, device=device, dtype=torch.int64),
        }
        self.captured: dict[tuple[int, str], Any] = {}
        self.graphs(not enforce_eager)

    # what a serving loop calls

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i` on `n` rows: {"logits": (n, vocab), "tokens": (n,)}, the caller's to keep."""
        if not self.use_graphs:
            with nvtx.annotate(f"decode step={i} bs={n}"):
                return self.finish(i, self.model(self.prepare(i, n, self.device)))
        with nvtx.annotate(f"decode step={i} bs={n} bucket={self.key(i, n)[0]}"):
            return self.replay(i, n)

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch; captures when first switched on."""
        self.use_graphs = on
        if on and not self.captured:
            self.recapture()

    def reset(self) -> None:
        """The caches as before step 0, in place. The engine keeps nothing else from step to step."""
        self.model.reset_caches(self.seed)

    def key(self, i: int, n: int) -> tuple[int, str]:
        """What the graph of a step is looked up by."""
        return next(bucket for bucket in self.captured_sizes if bucket >= n), HALVES[i % 2]

    # one step

    def prepare(self, i: int, n: int, device: str) -> DecodeInputs:
        """What the scheduler hands over for this step; pinned if it lies on the host and the model does not."""
        inputs = true_inputs(i, n, self.config.vocab_size, self.config.num_blocks, self.seed, device)
        return inputs.pinned() if device == "cpu" and torch.device(self.device).type == "cuda" else inputs

    def replay(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Stage a step on the copy stream, and replay its graph behind that."""
        bucket, half = self.key(i, n)
        self.wait_until_consumed(half)
        with torch.cuda.stream(self.copy_stream):
            stage(self.static[half], self.prepare(i, n, "cpu"))
            self.staged[half].record()
        torch.cuda.current_stream().wait_event(self.staged[half])
        self.captured[bucket, half].replay()
        self.consumed[half].record()
        return self.finish(i, {name: output[:n] for name, output in self.outputs.items()})

    def wait_until_consumed(self, half: str) -> None:
        """The reverse edge: the copy stream must not overwrite what the replay two steps ago may still read."""
        self.copy_stream.wait_event(self.consumed[half])

    def finish(self, i: int, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What is done with a step's outputs: handed out as copies, because the next replay overwrites them."""
        return {name: output.clone() for name, output in outputs.items()}

    # capture

    def recapture(self) -> None:
        """Capture all graphs anew, as at start-up: the largest first, so that the others fit into its memory."""
        torch.cuda.synchronize()
        self.copy_stream = torch.cuda.Stream()
        self.staged = {half: torch.cuda.Event() for half in HALVES}
        self.consumed = {half: torch.cuda.Event() for half in HALVES}
        self.captured.clear()
        for static in self.static.values():
            stage(static, padding(0, self.device))  # so that nothing below touches the caches
        pool = torch.cuda.graph_pool_handle()
        for bucket in reversed(self.captured_sizes):
            for half in HALVES:
                with nvtx.annotate(f"capture bucket={bucket}"):
                    self.captured[bucket, half] = self.capture(bucket, self.static[half], pool)

    def capture(self, bucket: int, static: DecodeInputs, pool: Any) -> torch.cuda.CUDAGraph:
        """One graph over the first `bucket` rows of `static`, in the shared pool."""
        self.warm_up(bucket, static)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self.run(bucket, static)
        return graph

    def warm_up(self, bucket: int, static: DecodeInputs) -> None:
        """What is lazy (cuBLAS, our kernels) happens before the capture."""
        self.run(bucket, static)

    def run(self, bucket: int, static: DecodeInputs) -> None:
        """The captured work: the model, and its outputs into the static ones."""
        for name, output in self.model(static.rows(bucket)).items():
            self.outputs[name][:bucket].copy_(output)
