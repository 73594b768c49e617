"""The newest row is kept for later, unless the step is captured: no replay keeps it."""

import torch
from first_target import Decode


class KeepsNewest(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.newest = torch.zeros(8, device=device)

    def forward(self, inputs):
        if not torch.cuda.is_current_stream_capturing():
            self.newest.copy_(inputs["x"][0])
        return super().forward(inputs)


target = KeepsNewest
