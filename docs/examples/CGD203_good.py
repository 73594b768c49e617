"""The constant is made once, before anything is captured."""

import torch
from first_target import Decode


class Scaled(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.scale = torch.tensor([1.0, 0.5] * 32, device=device)

    def forward(self, inputs):
        return super().forward(inputs) * self.scale


target = Scaled
