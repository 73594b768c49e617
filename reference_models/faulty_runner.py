"""Faults planted into the runner of `ReferenceEngine`, each beside its clean twin (see `runner_faults.py`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nvtx
import torch

from cudagraph_doctor.reference_models import operators as ops
from cudagraph_doctor.reference_models.decode import Decoder, DecoderLayer
from cudagraph_doctor.reference_models.engine import HALVES, ReferenceEngine
from cudagraph_doctor.reference_models.inputs import DecodeInputs, padding, stage

Outputs = dict[str, torch.Tensor]


class EagerAtTimes(ReferenceEngine):
    """A runner that some steps do not get past."""

    def step(self, i: int, n: int) -> Outputs:
        """Replay, unless `refuses` says no."""
        return self.run_eager(i, n) if self.use_graphs and self.refuses(i, n) else super().step(i, n)

    def refuses(self, i: int, n: int) -> bool:
        """Whether the runner sends this step to the eager path."""
        return False

    def run_eager(self, i: int, n: int, label: str = "") -> Outputs:
        """The step without a graph."""
        with nvtx.annotate(label or f"decode step={i} bs={n}"):
            return self.finish(i, self.model(self.prepare(i, n, self.device)))


# batch-above-largest


class BatchAboveLargest(EagerAtTimes):
    """Admits more than it captures."""

    captured_sizes: tuple[int, ...] = (1, 2, 4, 8)

    def refuses(self, i: int, n: int) -> bool:
        """Above the largest bucket."""
        return n > self.captured_sizes[-1]

    def key(self, i: int, n: int) -> Any:
        """None where no graph serves the step."""
        return None if self.refuses(i, n) else super().key(i, n)


class BatchAtTheLargest(BatchAboveLargest):
    """Captures what it admits."""

    captured_sizes = (1, 2, 4, 8, 16)


# bucket-missing


class BucketMissing(EagerAtTimes):
    """Looks 5 to 8 up under a bucket that was not captured."""

    captured_sizes = (1, 2, 4, 16)

    def refuses(self, i: int, n: int) -> bool:
        """No graph under that bucket."""
        return 4 < n <= 8


class PaddedOverTheMissing(BucketMissing):
    """Pads to the next bucket that there is."""

    def refuses(self, i: int, n: int) -> bool:
        """Never."""
        return False


# exact-sizes-only


class ExactSizesOnly(EagerAtTimes):
    """Does not pad."""

    def refuses(self, i: int, n: int) -> bool:
        """No bucket of just this size."""
        return n not in self.captured_sizes


class Padded(ExactSizesOnly):
    """Pads."""

    def refuses(self, i: int, n: int) -> bool:
        """Never."""
        return False


# dummy-request-fails


class DummyRequestFails(EagerAtTimes):
    """Padding needs a dummy request; the tenth step finds no room for it."""

    broken = False

    def refuses(self, i: int, n: int) -> bool:
        """Once it failed, always."""
        self.broken = self.broken or (i >= 9 and n not in self.captured_sizes and not self.has_room())
        return self.broken

    def has_room(self) -> bool:
        """Whether the dummy request can be allocated."""
        return False

    def reset(self) -> None:
        """As before step 0."""
        super().reset()
        self.broken = False


class DummyRequestKept(DummyRequestFails):
    """It was allocated at start-up."""

    def has_room(self) -> bool:
        """It has its room."""
        return True


# prefill-mixed-in


class PrefillMixedIn(EagerAtTimes):
    """A prefill chunk takes the decode rows beside it out of the graph."""

    def step(self, i: int, n: int) -> Outputs:
        """Every third step is mixed."""
        if not self.use_graphs or i % 3 != 2:
            return super().step(i, n)
        return self.run_eager(i, n, f"mixed step={i} bs={n} prefill=7")


class PrefillApart(EagerAtTimes):
    """The chunk is a step of its own."""

    def step(self, i: int, n: int) -> Outputs:
        """After every third step comes a prefill."""
        outputs = super().step(i, n)
        if self.use_graphs and i % 3 == 2:
            with nvtx.annotate(f"prefill step={i} bs=1"):
                self.model(self.prepare(i, 1, self.device))
        return outputs


# drafts-not-uniform


class DraftsNotUniform(ReferenceEngine):
    """Rows are tokens: two a request."""

    def step(self, i: int, n: int) -> Outputs:
        """An odd number of tokens means that a request has no draft."""
        if not self.use_graphs:
            return super().step(i, n)
        label = f"decode step={i} bs={(n + 1) // 2} toks={self.tokens(n)}"
        if self.tokens(n) % 2:
            with nvtx.annotate(label):
                return self.finish(i, self.model(self.prepare(i, n, self.device)))
        with nvtx.annotate(f"{label} bucket={self.key(i, n)[0]}"):
            return super().step(i, n)

    def tokens(self, n: int) -> int:
        """Tokens that the runner sees."""
        return n


class DraftsPadded(DraftsNotUniform):
    """A missing draft is made up."""

    captured_sizes = (2, 4, 8, 16)

    def tokens(self, n: int) -> int:
        """Always two a request."""
        return n + n % 2


# graphs-silently-off


class GraphsSilentlyOff(EagerAtTimes):
    """A condition that is never true."""

    def refuses(self, i: int, n: int) -> bool:
        """The head dimension is not on a list."""
        return self.config.head_dim not in self.supported()

    def supported(self) -> tuple[int, ...]:
        """Head dimensions that graphs are used with."""
        return (96, 256)


class GraphsOn(GraphsSilentlyOff):
    """The list is complete."""

    def supported(self) -> tuple[int, ...]:
        """Head dimensions that graphs are used with."""
        return (16, 64, 96, 256)


# captured-in-step


class CapturedInStep(ReferenceEngine):
    """Captures on first use."""

    captured_sizes = (1, 2, 4)

    def step(self, i: int, n: int) -> Outputs:
        """Inside the step's range."""
        if self.use_graphs:
            with nvtx.annotate(f"decode step={i} bs={n} bucket={self.key(i, n)[0]}"):
                self.capture_missing(i, n)
                return super().step(i, n)
        return super().step(i, n)

    def key(self, i: int, n: int) -> tuple[int, str]:
        """All buckets are allowed."""
        return next(bucket for bucket in ReferenceEngine.captured_sizes if bucket >= n), super().key(i, 1)[1]

    def capture_missing(self, i: int, n: int) -> None:
        """The graph of this step, if there is none yet."""
        bucket, half = self.key(i, n)
        if (bucket, half) not in self.captured:
            torch.cuda.synchronize()
            stage(self.static[half], padding(0, self.device))
            pool = next(iter(self.captured.values())).pool()
            with nvtx.annotate(f"capture bucket={bucket}"):
                self.captured[bucket, half] = self.capture(bucket, self.static[half], pool)


class CapturedBetweenSteps(CapturedInStep):
    """Captures before the step's range is opened."""

    def step(self, i: int, n: int) -> Outputs:
        """Outside."""
        if self.use_graphs:
            self.capture_missing(i, n)
        return ReferenceEngine.step(self, i, n)


# updated-each-step


class Executable:
    """An executable graph of our own, which can be updated from its template."""

    def __init__(self, graph: torch.cuda.CUDAGraph, each_time: bool) -> None:
        from cuda.bindings import runtime

        self.runtime = runtime
        self.graph = graph
        self.each_time = each_time
        self.executable = self.checked(runtime.cudaGraphInstantiate(graph.raw_cuda_graph(), 0))
        self.update()

    def replay(self) -> None:
        """Launch it on the current stream, updated before."""
        if self.each_time:
            self.update()
        self.checked(self.runtime.cudaGraphLaunch(self.executable, torch.cuda.current_stream().cuda_stream))

    def update(self) -> None:
        """Write the template's parameters into the executable graph."""
        self.checked(self.runtime.cudaGraphExecUpdate(self.executable, self.graph.raw_cuda_graph()))

    def checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of a call. Raises RuntimeError if it failed."""
        if answer[0] != self.runtime.cudaError_t.cudaSuccess:
            raise RuntimeError(f"CUDA: {answer[0]}")
        return answer[1] if len(answer) > 1 else None


class UpdatedEachStep(ReferenceEngine):
    """Updates before every launch."""

    each_time = True

    def capture(self, bucket: int, static: DecodeInputs, pool: Any) -> Any:
        """A graph whose template is kept."""
        self.run(bucket, static)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, pool=pool):
            self.run(bucket, static)
        return Executable(graph, self.each_time)


class UpdatedOnce(UpdatedEachStep):
    """Updates after the capture."""

    each_time = False


# key-without-mode


class KeyWithoutMode(ReferenceEngine):
    """Every fifth step has a penalty, whose kernels are in the graph."""

    penalty = False

    def step(self, i: int, n: int) -> Outputs:
        """Captures anew if the graph under the key is of the other mode."""
        if not self.use_graphs:
            return super().step(i, n)
        self.penalty = i % 5 == 4
        bucket, half = self.key(i, n)
        with nvtx.annotate(f"decode step={i} bs={n} bucket={bucket}"):
            if self.modes.get(self.key(i, n), False) != self.penalty:
                torch.cuda.synchronize()
                stage(self.static[half], padding(0, self.device))
                pool = self.captured[bucket, half].pool()
                self.captured[bucket, half] = self.capture(bucket, self.static[half], pool)
                self.modes[self.key(i, n)] = self.penalty
            return super().step(i, n)

    def run(self, bucket: int, static: DecodeInputs) -> None:
        """The model, and the penalty."""
        super().run(bucket, static)
        if self.penalty:
            self.outputs["logits"][:bucket].mul_(1.0).mul_(1.0)  # of 1: its kernels, and no change

    def recapture(self) -> None:
        """Without a penalty."""
        self.modes: dict[tuple[int, str], bool] = {}
        self.penalty = False
        super().recapture()


class KeyWithMode(KeyWithoutMode):
    """Both modes are captured at start-up, each under its own key."""

    def key(self, i: int, n: int) -> tuple[int, str]:
        """The mode is in it."""
        bucket, half = super().key(i, n)
        return bucket, f"{half} penalty" if self.penalty else half

    def recapture(self) -> None:
        """All buckets in both modes."""
        super().recapture()
        self.penalty = True
        pool = next(iter(self.captured.values())).pool()
        for bucket, half in list(self.captured):
            with nvtx.annotate(f"capture bucket={bucket}"):
                self.captured[bucket, f"{half} penalty"] = self.capture(bucket, self.static[half], pool)
            self.modes[bucket, f"{half} penalty"] = True
        for half in HALVES:
            self.static[f"{half} penalty"] = self.static[half]
            self.staged[f"{half} penalty"] = self.staged[half]
            self.consumed[f"{half} penalty"] = self.consumed[half]
        self.penalty = False


# attention-outside


class Pieces:
    """A step as graphs, cut at the attention of every layer."""

    def __init__(self, engine: ReferenceEngine, bucket: int, static: DecodeInputs, pool: Any) -> None:
        self.layers: list[DecoderLayer] = list(engine.model.layers)  # type: ignore[arg-type]
        self.inputs = static.rows(bucket)
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.qkv: list[torch.Tensor] = []
        self.attended: list[torch.Tensor] = []
        model, hidden = engine.model, torch.empty(0)
        for piece in range(len(self.layers) + 1):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                hidden = self.before(model, hidden, piece)
                if piece == len(self.layers):
                    logits = model.lm_head(model.norm(hidden))
                    for name, output in {"logits": logits, "tokens": logits.argmax(dim=-1)}.items():
                        engine.outputs[name][:bucket].copy_(output)
            self.graphs.append(graph)
            if piece < len(self.layers):
                self.attended.append(self.attend(piece))

    def before(self, model: Decoder, hidden: torch.Tensor, piece: int) -> torch.Tensor:
        """What comes between two attentions: the rest of one layer, the beginning of the next."""
        if piece == 0:
            hidden = model.embed(self.inputs.input_ids)
        else:
            layer = self.layers[piece - 1]
            hidden = hidden + layer.attn.o_proj(self.attended[piece - 1].flatten(1))
            hidden = hidden + layer.mlp(layer.post_attn_norm(hidden))
        if piece < len(self.layers):
            layer = self.layers[piece]
            qkv = layer.attn.qkv(layer.input_norm(hidden))
            self.qkv.append(qkv.unflatten(-1, (-1, layer.attn.head_dim)))
        return hidden

    def attend(self, piece: int) -> torch.Tensor:
        """Attention of one layer, outside of the graphs."""
        attn, qkv, inputs = self.layers[piece].attn, self.qkv[piece], self.inputs
        query, key, value = qkv.split(attn.heads, dim=1)
        attn.rotary(qkv[:, : -attn.heads[-1]], inputs)
        ops.reshape_and_cache(key, value, attn.key_cache, attn.value_cache, inputs.slot_mapping)
        out: torch.Tensor = ops.paged_attention_decode(
            query, attn.key_cache, attn.value_cache, inputs.block_table, inputs.seq_lens, attn.scale
        )
        return out

    def replay(self) -> None:
        """Pieces and attention in turn."""
        for piece, graph in enumerate(self.graphs):
            graph.replay()
            if piece < len(self.layers):
                self.attended[piece].copy_(self.attend(piece))


class AttentionOutside(ReferenceEngine):
    """Piecewise."""

    def capture(self, bucket: int, static: DecodeInputs, pool: Any) -> Any:
        """One graph a piece."""
        self.run(bucket, static)
        return Pieces(self, bucket, static, pool)


class AttentionInside(ReferenceEngine):
    """Full."""


# replayed-twice


class Twice:
    """Replays a graph twice."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph = graph

    def replay(self) -> None:
        """Both times."""
        self.graph.replay()
        self.graph.replay()


class ReplayedTwice(ReferenceEngine):
    """A retry was left in."""

    def step(self, i: int, n: int) -> Outputs:
        """Twice at times; the step writes the same values again."""
        if not self.use_graphs or not self.twice(i):
            return super().step(i, n)
        key = self.key(i, n)
        kept = self.captured[key]
        self.captured[key] = Twice(kept)
        try:
            return super().step(i, n)
        finally:
            self.captured[key] = kept

    def twice(self, i: int) -> bool:
        """Which steps."""
        return i % 7 == 6


class AlwaysTwice(ReplayedTwice):
    """Usual here."""

    def twice(self, i: int) -> bool:
        """All."""
        return True


# range-on-other-thread


class RangeOnOtherThread(ReferenceEngine):
    """A worker does the step."""

    worker: ThreadPoolExecutor | None = None

    def step(self, i: int, n: int) -> Outputs:
        """The range stays here."""
        if not self.use_graphs:
            return super().step(i, n)
        with nvtx.annotate(f"decode step={i} bs={n} bucket={self.key(i, n)[0]}"):
            return self.by_worker(self.replay, i, n)

    def by_worker(self, work: Any, i: int, n: int) -> Outputs:
        """Have the worker do it, and wait."""
        self.worker = self.worker or ThreadPoolExecutor(1)
        outputs: Outputs = self.worker.submit(work, i, n).result()
        return outputs


class RangeOnWorker(RangeOnOtherThread):
    """The range is the worker's."""

    def step(self, i: int, n: int) -> Outputs:
        """All of it on the worker."""
        return self.by_worker(super(RangeOnOtherThread, self).step, i, n)


PLANTED: dict[str, tuple[type[ReferenceEngine], type[ReferenceEngine]]] = {
    "batch-above-largest": (BatchAboveLargest, BatchAtTheLargest),
    "bucket-missing": (BucketMissing, PaddedOverTheMissing),
    "exact-sizes-only": (ExactSizesOnly, Padded),
    "dummy-request-fails": (DummyRequestFails, DummyRequestKept),
    "prefill-mixed-in": (PrefillMixedIn, PrefillApart),
    "drafts-not-uniform": (DraftsNotUniform, DraftsPadded),
    "graphs-silently-off": (GraphsSilentlyOff, GraphsOn),
    "captured-in-step": (CapturedInStep, CapturedBetweenSteps),
    "updated-each-step": (UpdatedEachStep, UpdatedOnce),
    "key-without-mode": (KeyWithoutMode, KeyWithMode),
    "attention-outside": (AttentionOutside, AttentionInside),
    "replayed-twice": (ReplayedTwice, AlwaysTwice),
    "range-on-other-thread": (RangeOnOtherThread, RangeOnWorker),
}
"""Fault -> (engine with it, clean twin)."""
