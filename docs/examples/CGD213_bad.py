"""Each number of rows is tuned when it comes first; the warm-up brings the largest only."""

import torch
from first_target import Decode


class Tuned(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.tuned = set()

    def warmup(self):
        inputs = self.next_inputs(0, self.buckets[-1])
        self.forward({name: tensor.to(self.cache.device) for name, tensor in inputs.items()})

    def forward(self, inputs):
        rows = len(inputs["slots"])
        if rows not in self.tuned:
            self.tune()
            self.tuned.add(rows)
        return super().forward(inputs)

    def tune(self):
        done = torch.cuda.Event()
        done.record()
        done.synchronize()


target = Tuned
