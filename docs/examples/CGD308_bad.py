"""A weight update hangs up another Parameter; the graph keeps the first."""

import torch
from first_engine import Engine


class PutsAnotherWeight(Engine):
    batch_sizes = (4,)

    def __init__(self, device):
        self.head = torch.nn.Linear(64, 8, bias=False, device=device)
        self.checkpoints = [torch.ones(8, 64, device=device), torch.full((8, 64), 2.0, device=device)]
        super().__init__(device)

    def reset(self):
        super().reset()
        self.load(0)

    def load(self, number):
        self.head.weight = torch.nn.Parameter(self.checkpoints[number].clone(), requires_grad=False)

    def recapture(self):
        super().recapture()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.scores = self.head(self.model.forward(self.static))

    def step(self, i, n):
        self.load(int(i >= 2))
        scores = super().step(i, n)
        return scores if self.enabled else self.head(scores)


target = PutsAnotherWeight
