"""What cudagraph-doctor is to look at: the runner's own step, at the lengths that serving has."""

import torch
from decoder import BUCKETS, Decoder, Runner


class Target:
    batch_sizes = (1, 3, 7, 8)

    def __init__(self, device):
        self.device = device
        self.decoder = Decoder(device)
        self.runner = Runner(self.decoder, device)

    def reset(self):
        self.decoder.keys.zero_()
        self.decoder.values.zero_()

    def step(self, i, n):
        rows = torch.arange(n, device=self.device)
        pages = rows[:, None] * 4 + torch.arange(4, device=self.device)
        return self.runner.step((rows * 7 + i) % 64, (rows + i) % 16, pages)

    def graphs(self, on):
        self.runner.enforce_eager = not on

    def key(self, i, n):
        return next((bucket for bucket in BUCKETS if bucket >= n), None)

    def recapture(self):
        self.runner.capture()

    def reserved(self):  # what padding rows may write
        last_page = list(range(128, 132))
        return {"decoder.keys": last_page, "decoder.values": last_page}


target = Target
