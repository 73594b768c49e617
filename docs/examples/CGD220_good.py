"""They are counted always; what is left out of captures only looks."""

import torch
from first_target import Decode


class Counts(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.served = torch.zeros(1, device=device)

    def forward(self, inputs):
        self.served.add_(len(inputs["x"]))
        if not torch.cuda.is_current_stream_capturing() and not inputs["x"].isfinite().all():
            raise FloatingPointError("an input is not finite")
        return super().forward(inputs)


target = Counts
