"""Steps are counted where they are staged, outside of the graph."""

from first_target import Decode


class Counted(Decode):
    def reset(self):
        super().reset()
        self.steps = 0

    def update(self, static, fresh):
        if self.steps > 1000:
            raise OverflowError("the cache is full")
        self.steps += 1
        super().update(static, fresh)


target = Counted
