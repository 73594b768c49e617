"""Padding rows have a temperature that one can divide by."""

import torch
from first_target import Decode


class PaddingOfOne(Decode):
    def next_inputs(self, step, n):
        inputs = super().next_inputs(step, n)
        return {**inputs, "temperature": torch.full((n, 1), 0.5), "live": torch.ones(n, 1)}

    def update(self, static, fresh):
        super().update(static, fresh)
        for name, padding in (("temperature", 1.0), ("live", 0.0)):
            static[name].fill_(padding)
            static[name][: len(fresh[name])].copy_(fresh[name])

    def forward(self, inputs):
        scores = super().forward(inputs)
        largest = (scores / inputs["temperature"]).softmax(-1).amax(-1, keepdim=True)
        return scores * (inputs["live"] * largest).sum()


target = PaddingOfOne
