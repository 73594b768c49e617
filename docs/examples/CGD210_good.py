"""The part steps back when somebody else is capturing."""

import torch
from first_target import Decode


class WithCodec(Decode):
    def forward(self, inputs):
        scores = super().forward(inputs)
        if torch.cuda.is_current_stream_capturing():
            return scores * 0.5
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sound = scores * 0.5
        graph.replay()
        return sound


target = WithCodec
