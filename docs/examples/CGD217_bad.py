"""Python counts the steps inside of the step: replays run no Python, and staging looks at a count that stands still."""

from first_target import Decode


class Counted(Decode):
    def reset(self):
        super().reset()
        self.steps = 0

    def update(self, static, fresh):
        if self.steps > 1000:
            raise OverflowError("the cache is full")
        super().update(static, fresh)

    def forward(self, inputs):
        self.steps += 1
        return super().forward(inputs)


target = Counted
