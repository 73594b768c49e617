"""A decode step over a paged cache, small enough to read at a glance: the target of the README."""

import torch


class Decode:
    buckets = (1, 2, 4)

    def __init__(self, device):
        self.weight = (torch.arange(64.0, device=device) % 5 - 2).reshape(8, 8)
        self.cache = torch.zeros(65, 8, device=device)  # 4 sequences of 16 slots; slot 64 is for padding rows

    def reset(self):
        self.cache.zero_()

    def next_inputs(self, step, n):
        rows = torch.arange(n)
        return {"x": (rows[:, None] + step + torch.arange(8.0)) % 7, "slots": rows * 16 + step % 16}

    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"][:n].copy_(fresh["x"])
        static["slots"][:n].copy_(fresh["slots"])
        static["slots"][n:] = 64

    def forward(self, inputs):
        self.cache.index_copy_(0, inputs["slots"], inputs["x"] @ self.weight)
        return inputs["x"] @ self.cache[:64].T

    def state(self):
        return {"cache": self.cache}

    def reserved(self):
        return {"cache": [64]}


target = Decode
