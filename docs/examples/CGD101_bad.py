"""Staging makes a new `slots` each step; the graph goes on reading the one that it was captured with."""

import torch
from first_target import Decode


class Rebound(Decode):
    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"][:n].copy_(fresh["x"])
        static["slots"] = torch.full_like(static["slots"], 64)
        static["slots"][:n].copy_(fresh["slots"])


target = Rebound
