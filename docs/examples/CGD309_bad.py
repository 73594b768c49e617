"""Padding rows are sent to slot 0, which belongs to the first sequence."""

from first_target import Decode


class PaddingWritesLiveSlot(Decode):
    def update(self, static, fresh):
        super().update(static, fresh)
        static["slots"][len(fresh["slots"]) :] = 0


target = PaddingWritesLiveSlot
