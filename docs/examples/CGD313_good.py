"""The engine keeps a copy of the scores for the next step."""

from first_engine import Engine


class Damped(Engine):
    batch_sizes = (4,)

    def reset(self):
        super().reset()
        self.previous = None

    def step(self, i, n):
        scores = super().step(i, n)
        damped = scores if self.previous is None else scores - self.previous / 2
        self.previous = scores.clone()
        return damped


target = Damped
