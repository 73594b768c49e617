"""Padding rows are sent to a slot of their own, and `reserved()` says so."""

from first_target import Decode


class PaddingHasItsOwnSlot(Decode):
    def update(self, static, fresh):
        super().update(static, fresh)
        static["slots"][len(fresh["slots"]) :] = 64


target = PaddingHasItsOwnSlot
