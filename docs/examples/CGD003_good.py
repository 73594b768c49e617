"""Padding rows point at the slot that is there for them."""

from first_target import Decode


class PaddingInRange(Decode):
    def update(self, static, fresh):
        super().update(static, fresh)
        static["slots"][len(fresh["slots"]) :] = 64


target = PaddingInRange
