"""What a candidate says of itself."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.model import GraphNode, NodeKind
from cudagraph_doctor.replays.candidates import Candidate, Input, Kind, Part, kernel_name


def candidate(inputs: tuple[Input, ...], *parts: tuple[int, ...]) -> Candidate:
    told = tuple(Part(4 * at, 4, "int32", values) for at, values in enumerate(parts))
    return Candidate(Kind.VALUE, "4", 0, "scale", (0,), inputs, 0, parts=told)


@pytest.mark.parametrize(
    ("inputs", "parts", "steady"),
    [
        (((1, 4), (2, 4), (3, 4)), ((5, 5, 6),), True),  # a threshold between the second and the third
        (((1, 4), (2, 4), (3, 4)), ((5, 6, 7),), False),  # another at every step
        (((1, 4), (2, 4), (3, 4)), ((5, 5, 6), (1, 2, 3)), False),  # one of two does
        (((1, 4), (1, 3)), ((5, 6),), False),  # nothing shows that it stays from step to step
        (((1, 4), (1, 3), (2, 4)), ((5, 6, 5),), True),
    ],
)
def test_whether_a_key_could_hold_it(
    inputs: tuple[Input, ...], parts: tuple[tuple[int, ...], ...], steady: bool
) -> None:
    assert candidate(inputs, *parts).steady is steady


def test_values_by_input() -> None:
    assert candidate(((1, 4), (2, 4)), (5, 6), (7, 8)).values == {(1, 4): (5, 7), (2, 4): (6, 8)}


def test_kernels_have_readable_names() -> None:
    mangled = "_ZN2at6native18elementwise_kernelILi128ENS0_15CUDAFunctor_addIfEEEEvi"
    assert kernel_name(GraphNode(0, NodeKind.KERNEL, mangled)) == "elementwise_kernel<CUDAFunctor_add>"
    assert kernel_name(GraphNode(0, NodeKind.MEMCPY, "memcpy")) == "memcpy"
