"""The target names its generator, and it is registered on every graph."""

import torch
from first_target import Decode


class Noisy(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.generator = torch.Generator(device).manual_seed(0)
        self.generators = [self.generator]

    def reset(self):
        super().reset()
        self.generator.manual_seed(0)

    def forward(self, inputs):
        scores = super().forward(inputs)
        return scores + torch.empty_like(scores).uniform_(generator=self.generator)


target = Noisy
