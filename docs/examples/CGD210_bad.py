"""A part of the step captures a graph of its own, whoever else is capturing."""

import torch
from first_target import Decode


class WithCodec(Decode):
    def forward(self, inputs):
        scores = super().forward(inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sound = scores * 0.5
        graph.replay()
        return sound


target = WithCodec
