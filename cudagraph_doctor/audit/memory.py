"""Device memory of a list of keys: captured largest first into one pool, or each with a pool of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudagraph_doctor.audit.costs import Costs
from cudagraph_doctor.audit.keys import KeySet


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of all graphs of one list."""

    graphs: int
    """Beside their pools."""
    one_pool: int
    """The pool, if they share one and the largest is captured first."""
    own_pools: int
    """The pools, if each has its own: also about what smallest first takes in one, where no block can be used again."""

    @property
    def total(self) -> int:
        """With one pool."""
        return self.graphs + self.one_pool


def of(sizes: Iterable[int], costs: Costs, copies: int = 1) -> Memory | None:
    """The memory of keys of these sizes, `copies` graphs each; None if the costs do not tell."""
    keys = sorted(sizes)
    graphs = [costs.graph_bytes(key) for key in keys]
    pools = [costs.pool_bytes(key) for key in keys]
    if any(size is None for size in graphs):
        return None
    known = [size or 0 for size in pools]
    return Memory(copies * sum(size or 0 for size in graphs), max(known, default=0), copies * sum(known))


def copies(keys: KeySet) -> int:
    """Graphs of each size: one for each number of adapters."""
    return max(1, len(keys.adapters))
