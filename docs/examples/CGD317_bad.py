"""The captured code sets `largest`; the engine reads it behind the replay, which sets nothing."""

import torch
from first_engine import Engine


class ReadsAttribute(Engine):
    batch_sizes = (2, 4)

    def scored(self, inputs):
        scores = self.model.forward(inputs)
        self.largest = scores.amax()
        return scores

    def recapture(self):
        super().recapture()
        self.graphs_by_size = {}
        for size in self.batch_sizes:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                scores = self.scored({name: buffer[:size] for name, buffer in self.static.items()})
            self.graphs_by_size[size] = (graph, scores)

    def step(self, i, n):
        fresh = {name: value.to(self.device) for name, value in self.model.next_inputs(i, n).items()}
        if not self.enabled:
            scores = self.scored(fresh)
            return scores / self.largest
        self.model.update(self.static, fresh)
        graph, scores = self.graphs_by_size[n]
        graph.replay()
        return scores / self.largest


target = ReadsAttribute
