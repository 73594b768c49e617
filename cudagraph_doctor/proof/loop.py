"""A LoopTarget as a subject: the doctor stages, captures and replays; or the target's own runner does (`graphed`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from cudagraph_doctor import blame, returned, tree
from cudagraph_doctor.errors import DoctorError, Inconclusive, TargetError
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.proof.compare import compare
from cudagraph_doctor.proof.schedule import choose, left_out, schedule
from cudagraph_doctor.proof.shape import live_part
from cudagraph_doctor.proof.staging import Staging, default_update
from cudagraph_doctor.proof.subject import Held, Outputs, Planned, Replaying, hold
from cudagraph_doctor.rewalk import Rewalk


@dataclass(slots=True)
class _Capture:
    graph: Any
    static: Any
    outputs: Any
    held: Held


class LoopSubject:
    """Runs a LoopTarget's arms.

    Args:
        target: a LoopTarget.
        backend: where it runs; its hooks are in.
    """

    def __init__(self, target: Any, backend: Backend) -> None:
        self.target = target
        self.not_checked: list[str] = []
        self.pipelined = returned.pipelined(target)
        self.generators = returned.generators(target)
        self.untouchable: tuple[torch.Tensor, ...] = ()
        self.to_recapture = ""
        self.form = "loop"
        self.around_forward: AbstractContextManager[Any] = nullcontext()
        """Entered around `forward` itself, where it runs eagerly on true values."""
        self.around_capture: Callable[[int], AbstractContextManager[Any]] = lambda _bucket: nullcontext()
        """Entered with the bucket around each capture of `capture_all`; what it raises ends that."""
        self.pool: Any = None
        """The pool that all captures share; None: each has one of its own."""
        self._backend = backend
        self._buckets = list(target.buckets)
        self._old: dict[int, _Capture] = {}
        self._fresh: dict[int, _Capture] = {}
        self._walk = Rewalk()
        self._staging = Staging(target, self._next_inputs, backend.device)
        self._shapes: dict[int, dict[str, torch.Size]] = {}
        """Position in the plan -> shapes of what the eager step put out, by path."""

    @property
    def can_recapture(self) -> bool:
        """See `Subject.can_recapture`."""
        return not self.to_recapture

    # the plan

    def plan(self, steps: int, keys: Sequence[int], sizes: Sequence[int], exhaustive: bool) -> list[Planned]:
        """See `Subject.plan`. A batch size above the largest bucket gets key None."""
        unknown = [key for key in keys if key not in self._buckets]
        if unknown:
            raise TargetError(
                f"the target has no bucket {unknown[0]}",
                seen=f"its buckets are {self._buckets}",
                fix="name buckets that the target captures",
            )
        chosen = list(keys) or choose(self._buckets, exhaustive)
        if not sizes:
            order = schedule(chosen, self._buckets, steps)
        else:
            order = [sizes[i % len(sizes)] for i in range(max(steps, len(sizes)))]
        planned = [Planned(i, i, rows, self._bucket(rows)) for i, rows in enumerate(order)]
        if not keys and not sizes:
            self.not_checked += left_out("bucket", self._buckets, [at.key for at in planned])
        self._staging.steps = range(len(planned) + 1)  # one more: what is captured is a step outside the plan
        return planned

    def _bucket(self, rows: int) -> Hashable:
        return next((bucket for bucket in self._buckets if bucket >= rows), None)

    # values

    def _next_inputs(self, step: int, rows: int) -> Any:
        """`next_inputs`. Raises Inconclusive, with the step and the rows, where it raises."""
        try:
            return self.target.next_inputs(step, rows)
        except Exception as error:
            # a replay that broke the device is heard of at the next call, whatever that is
            if isinstance(error, DoctorError) or blame.is_out_of_memory(error) or "CUDA error" in str(error):
                raise
            raise Inconclusive(
                f"next_inputs(step={step}, n={rows}) raised {type(error).__name__}",
                seen=blame.describe(error),
                fix=f"let next_inputs(step, n) answer for every step from 0 on and up to {max(self._buckets)} rows, or "
                "ask for fewer --steps or other --batch-sizes",
                traceback=blame.user_traceback(error),
            ) from error

    def _fresh_inputs(self, step: int, rows: int) -> Any:
        """`next_inputs`, on the device, sharing no memory with a static input."""
        inputs = self._next_inputs(step, rows)
        static = self._static_memory()

        def place(path: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if leaf.numel() and leaf.untyped_storage().data_ptr() in static:
                note = f"next_inputs returned `{path}` in the memory of a static input; it was copied"
                if note not in self.not_checked:
                    self.not_checked.append(note)
                return leaf.clone()
            return leaf.to(self._backend.device) if self._backend.is_host(leaf) else leaf

        return tree.rebuild(inputs, place)

    def _static_memory(self) -> set[int]:
        """Addresses of the storages that static inputs lie in."""
        return {t.untyped_storage().data_ptr() for c in self._old.values() for t in tree.tensors(c.static).values()}

    def truth(self, at: Planned) -> Mapping[str, torch.Tensor]:
        """See `Subject.truth`."""
        return tree.tensors(self._fresh_inputs(at.step, at.rows))

    def host_truth(self, at: Planned) -> Mapping[str, object]:
        """See `Subject.host_truth`."""
        told = tree.leaves(self._next_inputs(at.step, at.rows))
        return {path: leaf for path, leaf in told.items() if not isinstance(leaf, torch.Tensor)}

    def host_static(self, at: Planned) -> Mapping[str, object]:
        """Host values among the static inputs of the step's graph, by path, as staging left them."""
        leaves = tree.leaves(self._old[self._key(at)].static)
        return {path: leaf for path, leaf in leaves.items() if not isinstance(leaf, torch.Tensor)}

    def check_contract(self, plan: Sequence[Planned]) -> None:
        """Raise TargetError if `next_inputs` is not pure, or gives other rows than it is asked for."""
        self._check_rows(plan)
        for at in (plan[0], plan[-1]):
            first = tree.copies(self._next_inputs(at.step, at.rows))
            self._next_inputs(at.step + 1, at.rows)
            for other in compare(tree.copies(self._next_inputs(at.step, at.rows)), first):
                raise TargetError(
                    f"next_inputs({at.step}, {at.rows}) is not pure: `{other.path}` differs between two calls",
                    fix="make next_inputs(step, n) a function of step and n alone: any order, any "
                    "number of calls, the same answer (a seeded generator made inside it)",
                )

    def _check_rows(self, plan: Sequence[Planned]) -> None:
        """A tensor that has the rows asked for at most batch sizes, and not at all: a count is wrong.

        One that never has them holds something else; one that seldom has them is padded in its own way.
        """
        asked = {at.rows: at.step for at in reversed(plan)}
        sizes: dict[str, dict[int, int]] = {}
        for rows, step in asked.items():
            for path, tensor in tree.tensors(self._next_inputs(step, rows)).items():
                sizes.setdefault(path, {})[rows] = len(tensor) if tensor.dim() else -1
        for path, given in sizes.items():
            wrong = [rows for rows, size in given.items() if size != rows]
            if wrong and len(given) - len(wrong) >= 2 * len(wrong):
                rows = wrong[0]
                raise TargetError(
                    f"next_inputs({asked[rows]}, {rows}) returned `{path}` with {given[rows]} rows instead of {rows}",
                    seen=f"as many as asked for at n = {', '.join(str(n) for n in sorted(given) if n not in wrong)}",
                    fix="let next_inputs(step, n) return n rows of every per-row tensor, without padding",
                )

    def _static_again(self, bucket: int) -> Any:
        """Buffers for a graph captured now. Those that the target hands out each time get copies, as at first."""
        taken, first = self._static_memory(), self._staging.first[bucket]

        def own(path: str, leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.untyped_storage().data_ptr() in taken:
                return first[path].clone() if path in first else leaf.clone()
            return leaf

        return tree.rebuild(self._staging.static(bucket), own)

    def pads(self, at: Planned) -> bool:
        """Whether the doctor makes up padding at this step: it has some, and the target has no `update`."""
        if self.form != "loop" or self._staging.has("update"):
            return False
        truth = self.truth(at)
        return any(t.shape != truth[path].shape for path, t in self.static_now(at).items() if path in truth)

    # the arms

    def reset(self) -> None:
        """See `Subject.reset`."""
        self.target.reset()

    def eager(self, at: Planned) -> Outputs:
        """See `Subject.eager`. Raises Inconclusive if `forward` replays graphs of its own."""
        before = self._backend.log.replays
        inputs = self._fresh_inputs(at.step, at.rows)
        with self.around_forward, _during(at, "forward"):
            outputs = self.target.forward(inputs)
        if self._backend.log.replays != before:
            own = [live.captured_at for live in self._backend.log.graphs if live.replays and live.captured_at]
            where = f"; captured at {own[0].file}:{own[0].line}" if own else ""
            raise Inconclusive(
                "the target's forward() replays CUDA graphs of its own, so it is no eager step to compare with",
                seen=f"{self._backend.log.replays - before} replays in one call{where}",
                fix='compile with mode "default" instead of "reduce-overhead", give forward() the callable that '
                "make_graphed_callables was given, or write an EngineTarget whose graphs(on) switches them",
            )
        self._shapes[at.index] = {path: tensor.shape for path, tensor in tree.tensors(outputs).items()}
        return outputs

    def padded(self, at: Planned) -> Outputs:
        """The step eagerly on the static inputs of the graph captured last, staged as before a replay. Live rows."""
        key = self._key(at)
        static = (self._fresh.get(key) or self._old[key]).static
        with _during(at, "update"):
            self._staging.stage(static, self._fresh_inputs(at.step, at.rows), key, capturing=False)
        return self._live_rows(self.target.forward(static), at)

    def widened(self, at: Planned) -> Outputs:
        """The step eagerly at the graph's batch size, on true values alone; see `Arm.WIDENED`. Live rows.

        Raises TargetError if the static inputs have no room for what `next_inputs` gives.
        """
        key, fresh = self._key(at), self._fresh_inputs(at.step, at.rows)
        true = {**tree.leaves(fresh), **{path: t.clone() for path, t in self._staging.first[key].items()}}
        wide = tree.rebuild(self._old[key].static, lambda path, leaf: true.get(path, leaf))
        default_update(wide, fresh)
        buffers = tree.tensors(wide)
        for path, value in tree.tensors(fresh).items():
            if value.dim() and len(value) == at.rows:
                buffers[path][at.rows :] = buffers[path][:1]
        with self.around_forward:
            outputs = self.target.forward(wide)
        return self._live_rows(outputs, at)

    def capture_all(self, plan: Sequence[Planned], replaying: Replaying) -> None:
        """Capture every bucket of the plan, largest first, at values of a step outside it (or `at_capture`)."""
        beyond = 1 + max(at.step for at in plan)
        at_capture = getattr(self.target, "at_capture", None)
        buckets: list[Any] = sorted({at.key for at in plan if at.key is not None}, reverse=True)
        # all before any is staged: buckets may share their buffers
        static = {bucket: self._staging.static(bucket) for bucket in buckets}
        for bucket, made in static.items():
            self._staging.remember(bucket, made)
        for bucket in buckets:
            values = at_capture(bucket) if at_capture else self._fresh_inputs(beyond, bucket)
            with self.around_capture(bucket):
                self._old[bucket] = self._capture(bucket, static[bucket], values, warm=True)

    def recapture(self, at: Planned) -> None:
        """See `Subject.recapture`."""
        self.recapture_told(at, {})

    def recapture_told(self, at: Planned, told: Mapping[str, object]) -> None:
        """The same of a step that has these host values, by path, whatever is staged."""
        bucket = self._key(at)
        values = self._fresh_inputs(at.step, at.rows)
        self._fresh[bucket] = self._capture(bucket, self._static_again(bucket), values, warm=False, told=told)

    def drop_fresh(self) -> None:
        """See `Subject.drop_fresh`."""
        self._fresh.clear()

    def _key(self, at: Planned) -> int:
        if not isinstance(at.key, int):
            raise Inconclusive(f"no bucket serves {at.in_rows}", fix="add a bucket, or leave this batch size out")
        return at.key

    def _capture(
        self, bucket: int, static: Any, values: Any, warm: bool, told: Mapping[str, object] = MappingProxyType({})
    ) -> _Capture:
        with blame.during(f"the staging of bucket {bucket} for its capture"):
            self._staging.stage(static, values, bucket, capturing=True)
        if told:
            static = tree.rebuild(static, lambda path, leaf: told.get(path, leaf))
        if warm:
            self._warm_up(static)
        # most graphs that are captured now are read and never replayed: torch instantiates those that are
        graph = torch.cuda.CUDAGraph(keep_graph=not warm)
        for generator in self.generators:
            graph.register_generator_state(generator)
        seen: list[LiveGraph] = []
        before = self._walk(self.roots()).paths
        stream = torch.cuda.current_stream()
        try:
            with (
                self._backend.log.listening(captured=seen.append),
                torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"),
            ):
                outputs = self.target.forward(static)
        except Exception as error:
            torch.cuda.set_stream(stream)  # a capture that fails leaves its own stream current
            raise Inconclusive(
                f"forward() cannot be captured for bucket {bucket}",
                seen=blame.describe(error),
                fix="take what is illegal during a capture out of the step: reading device values on the host "
                "(.item(), print, if), shapes that depend on values, synchronisation, copies from pageable memory",
                traceback=blame.user_traceback(blame.first(error)),
            ) from error
        inputs = tree.tensors(static)
        around = self._walk(self.roots())
        held = hold(seen[-1], {**around.tensors, **self.named(), **inputs}, inputs, around.paths, before)
        # the step's own values go with `values`; what update rebound to is in `static`, and held
        return _Capture(graph, static, outputs, held)

    def _warm_up(self, static: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            warmup = getattr(self.target, "warmup", None)
            if warmup:
                warmup()
            else:
                self.target.forward(static)
                self.target.forward(static)
        torch.cuda.current_stream().wait_stream(side)

    def replayed(self, at: Planned) -> Outputs:
        """See `Subject.replayed`."""
        return self._replay(self._old[self._key(at)], at)

    def fresh(self, at: Planned) -> Outputs:
        """See `Subject.fresh`."""
        return self._replay(self._fresh[self._key(at)], at)

    def staged(self, at: Planned) -> Any:
        """The graph captured earlier, with this step staged: what is left to do is `replay()`."""
        return self._stage(self._old[self._key(at)], at)

    def _replay(self, capture: _Capture, at: Planned) -> Outputs:
        self._stage(capture, at).replay()
        return self._live_rows(capture.outputs, at)

    def _stage(self, capture: _Capture, at: Planned) -> Any:
        fresh = self._fresh_inputs(at.step, at.rows)
        with _during(at, "update"):
            self._staging.stage(capture.static, fresh, self._key(at), capturing=False)
        return capture.graph

    def _live_rows(self, outputs: Any, at: Planned) -> Any:
        """Without padding, as wide as what the eager step put out."""
        bucket, eager = self._key(at), self._shapes.get(at.index, {})

        def live(path: str, leaf: Any) -> Any:
            return live_part(leaf, eager.get(path, ()), at.rows, bucket) if isinstance(leaf, torch.Tensor) else leaf

        return tree.rebuild(outputs, live)

    # names

    def has_replayed(self, at: Planned) -> bool:
        """Always: `replayed` is a replay."""
        return True

    def held(self, at: Planned, fresh: bool = False) -> list[Held]:
        """See `Subject.held`."""
        capture = (self._fresh if fresh else self._old).get(self._key(at))
        return [capture.held] if capture else []

    def static_now(self, at: Planned, fresh: bool = False) -> Mapping[str, torch.Tensor]:
        """The static inputs as the target's objects hold them now (after `update` may have rebound them)."""
        capture = (self._fresh if fresh else self._old)[self._key(at)]
        return tree.tensors(capture.static)

    def roots(self) -> Mapping[str, object]:
        """See `Subject.roots`."""
        return {"": self.target}

    def named(self) -> Mapping[str, torch.Tensor]:
        """See `Subject.named`."""
        return {**returned.tensors(self.target, "named"), **returned.tensors(self.target, "state")}

    def reserved(self) -> Mapping[str, Iterable[int]]:
        """See `Subject.reserved`."""
        return returned.reserved(self.target)


def _during(at: Planned, member: str) -> AbstractContextManager[None]:
    return blame.during(f"{member}() of step {at.step} with {at.in_rows}")
