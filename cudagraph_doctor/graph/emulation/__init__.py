"""The parts of the emulated backend: a CPU that behaves like a CUDA device as far as graphs are concerned.

Read on in this order: `memory` (what is device memory), `operators` (what an operator does), `recording` (a captured
graph), `capture` (making one), `watch` (the dispatch mode that feeds it) and `legality` (what it refuses); `streams`,
`graphs`, `generators`, `tensors` and `torch_cuda` (the stand-ins), `installation` (which puts them in place);
`parameters` and `reading` (a recording as the graph model).
"""
