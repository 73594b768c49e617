"""The device decides by the length, at each replay."""

import torch
from first_target import Decode


class BranchOnDevice(Decode):
    def next_inputs(self, step, n):
        return {**super().next_inputs(step, n), "length": torch.tensor(step + 1)}

    def update(self, static, fresh):
        super().update(static, fresh)
        static["length"].copy_(fresh["length"])

    def forward(self, inputs):
        scores = super().forward(inputs)
        return torch.where(inputs["length"] > 3, scores.relu(), scores)


target = BranchOnDevice
