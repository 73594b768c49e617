"""Python decides by the length, once: at the capture."""

from first_target import Decode


class BranchOnHost(Decode):
    def next_inputs(self, step, n):
        return {**super().next_inputs(step, n), "length": step + 1}

    def update(self, static, fresh):
        super().update(static, fresh)
        static["length"] = fresh["length"]

    def forward(self, inputs):
        scores = super().forward(inputs)
        if inputs["length"] > 3:
            scores = scores.relu()
        return scores


target = BranchOnHost
