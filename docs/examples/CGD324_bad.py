"""Python counts the rounds; replays repeat the number of the capture."""

from first_target import Decode


class CountsOnHost(Decode):
    def reset(self):
        super().reset()
        self.round = 0

    def forward(self, inputs):
        self.round += 1
        return super().forward(inputs) * self.round


target = CountsOnHost
