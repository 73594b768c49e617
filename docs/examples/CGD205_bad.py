"""The step asks whether the weights have arrived."""

import torch
from first_target import Decode


class Loading(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.loaded = torch.cuda.Event()
        self.loaded.record()

    def forward(self, inputs):
        if not self.loaded.query():
            raise RuntimeError("the weights are not there yet")
        return super().forward(inputs)


target = Loading
