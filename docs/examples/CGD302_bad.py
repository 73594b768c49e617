"""Staging copies half of the columns of `x`."""

from first_target import Decode


class CopiesHalf(Decode):
    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"][:n, :4].copy_(fresh["x"][:, :4])
        static["slots"][:n].copy_(fresh["slots"])
        static["slots"][n:] = 64


target = CopiesHalf
