"""The best list of keys against habitual ones on three made-up loads, with modelled costs: a table for the docs.

    python benchmarks/bucket_lists.py [--cost-model base=1,row=0.05,eager=8]

The loads are decode batches of a server that admits 256 requests: "steady" is around 90, "bursty" mostly a few with
some of every size, "full" at the limit most of the time. Time saved is that of all steps, against the habitual list of
as many keys.
"""

from __future__ import annotations

import argparse
import math

from cudagraph_doctor.audit import best, traffic
from cudagraph_doctor.audit.costs import Costs, Modelled
from cudagraph_doctor.audit.keys import KeySet
from cudagraph_doctor.audit_values import cost_model

MOST = 256
COSTS = "base=1,row=0.05,eager=8"
"""Milliseconds; as `audit --cost-model` has them."""


def loads() -> dict[str, dict[int, float]]:
    """Name -> batch -> share of the steps."""
    sizes = range(1, MOST + 1)
    steady = {n: math.exp(-(((n - 90) / 25) ** 2) / 2) for n in sizes}
    bursty = {n: 1 / n**1.2 for n in sizes}
    full = {n: 0.1 / MOST + (0.9 if n == 250 else 0.0) for n in sizes}
    return {"steady": steady, "bursty": bursty, "full": full}


def habits() -> dict[str, tuple[int, ...]]:
    """Lists as people and engines have them."""
    return {
        "powers of two": tuple(2**i for i in range(9)),
        "1, 2, 4, steps of 8": (1, 2, 4, *range(8, MOST + 1, 8)),
        "1, 2, 4, 8, steps of 32": (1, 2, 4, 8, *range(32, MOST + 1, 32)),
    }


def table(costs: Costs) -> str:
    """Markdown: a row a load and a list."""
    rows = ["| load | list | keys | padding | padding of the best list | time saved | with half the keys |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for load, steps in loads().items():
        for name, keys in habits().items():
            old = traffic.meet(steps, KeySet("decode", keys, MOST), costs)
            lists = best.curve(steps, MOST, len(keys), costs)
            new = traffic.meet(steps, KeySet("decode", lists[-1].keys, MOST), costs)
            half = [one for one in lists if len(one.keys) <= len(keys) // 2][-1]
            rows.append(
                f"| {load} | {name} | {len(keys)} | {old.padding_share or 0:.1%} | {new.padding_share or 0:.1%} "
                f"| {1 - new.ms / old.ms:.1%} | {1 - half.cost_ms / old.ms:+.1%} |"
            )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost-model", default=COSTS, help="as for `audit`; default: %(default)s")
    costs: Modelled = cost_model(parser.parse_args().cost_model)
    print(f"Costs {costs.origin}.\n\n{table(costs)}")


if __name__ == "__main__":
    main()
