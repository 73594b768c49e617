"""The row is kept always; what is left out of captures only looks."""

import torch
from first_target import Decode


class KeepsNewest(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.newest = torch.zeros(8, device=device)

    def forward(self, inputs):
        self.newest.copy_(inputs["x"][0])
        if not torch.cuda.is_current_stream_capturing() and not inputs["x"].isfinite().all():
            raise FloatingPointError("an input is not finite")
        return super().forward(inputs)


target = KeepsNewest
