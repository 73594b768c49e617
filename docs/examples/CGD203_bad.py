"""A constant is made in the step, from a Python list: it is copied from pageable memory every time."""

import torch
from first_target import Decode


class Scaled(Decode):
    def forward(self, inputs):
        scale = torch.tensor([1.0, 0.5] * 32, device=self.cache.device)
        return super().forward(inputs) * scale


target = Scaled
