"""The bound is kept on the device: nobody has to wait."""

from first_target import Decode


class Clamped(Decode):
    def forward(self, inputs):
        return super().forward({**inputs, "slots": inputs["slots"].clamp(max=64)})


target = Clamped
