"""Padding rows point behind the end of the cache: eager has no padding rows, the replay fails."""

from first_target import Decode


class PaddingOutOfRange(Decode):
    def update(self, static, fresh):
        super().update(static, fresh)
        static["slots"][len(fresh["slots"]) :] = 65


target = PaddingOutOfRange
