"""Noise comes from a generator of the step's own, which no graph knows."""

import torch
from first_target import Decode


class Noisy(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.generator = torch.Generator(device).manual_seed(0)

    def reset(self):
        super().reset()
        self.generator.manual_seed(0)

    def forward(self, inputs):
        scores = super().forward(inputs)
        return scores + torch.empty_like(scores).uniform_(generator=self.generator)


target = Noisy
