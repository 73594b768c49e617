"""`reset()` brings back all that steps change, on the device and on the host."""

from first_target import Decode


class Counting(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.served = 0

    def reset(self):
        super().reset()
        self.served = 0

    def forward(self, inputs):
        self.served += 1
        return super().forward(inputs)


target = Counting
