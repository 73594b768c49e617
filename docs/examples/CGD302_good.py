"""Staging copies all columns of `x`."""

from first_target import Decode


class CopiesAll(Decode):
    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"][:n].copy_(fresh["x"])
        static["slots"][:n].copy_(fresh["slots"])
        static["slots"][n:] = 64


target = CopiesAll
