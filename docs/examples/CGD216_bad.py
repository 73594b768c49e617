"""Each step takes a pinned buffer from a list, copies from it, and lets it go."""

import torch
from first_target import Decode


class Scaled(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.scale = torch.ones(64, device=device)
        self.buffers = [torch.ones(64).pin_memory() for _ in range(64)]

    def forward(self, inputs):
        self.scale.copy_(self.buffers.pop(), non_blocking=True)
        return super().forward(inputs) * self.scale


target = Scaled
