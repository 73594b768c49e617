"""Statistics are made on a side stream, and nobody waits for it."""

import torch
from first_target import Decode


class Counted(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.side = torch.cuda.Stream()
        self.largest = torch.zeros((), device=device)

    def forward(self, inputs):
        scores = super().forward(inputs)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.largest.copy_(scores.amax())
        return scores


target = Counted
