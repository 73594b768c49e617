"""One pinned buffer lives as long as the graph."""

import torch
from first_target import Decode


class Scaled(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.scale = torch.ones(64, device=device)
        self.buffer = torch.ones(64).pin_memory()

    def forward(self, inputs):
        self.scale.copy_(self.buffer, non_blocking=True)
        return super().forward(inputs) * self.scale


target = Scaled
