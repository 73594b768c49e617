"""The scale of the step is a Python number: the graph keeps that of its capture."""

from first_target import Decode


class ScaleByValue(Decode):
    def next_inputs(self, step, n):
        return {**super().next_inputs(step, n), "scale": 1.0 + step % 5}

    def update(self, static, fresh):
        super().update(static, fresh)
        static["scale"] = fresh["scale"]

    def forward(self, inputs):
        return super().forward(inputs) * inputs["scale"]


target = ScaleByValue
