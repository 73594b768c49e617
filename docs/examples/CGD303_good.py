"""Rows behind the batch write to a slot that nobody owns."""

import torch
from first_target import Decode


class SlotsReset(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.device = device

    def static_inputs(self, bucket):
        return {
            "x": torch.zeros(bucket, 8, device=self.device),
            "slots": torch.full((bucket,), 64, device=self.device),
        }

    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"].zero_()
        static["x"][:n].copy_(fresh["x"])
        static["slots"][:n].copy_(fresh["slots"])
        static["slots"][n:] = 64


target = SlotsReset
