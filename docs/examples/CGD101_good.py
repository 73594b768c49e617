"""Staging writes into the tensor that the graph was captured with."""

from first_target import Decode


class Filled(Decode):
    def update(self, static, fresh):
        n = len(fresh["slots"])
        static["x"][:n].copy_(fresh["x"])
        static["slots"].fill_(64)
        static["slots"][:n].copy_(fresh["slots"])


target = Filled
