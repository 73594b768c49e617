"""All rows are kept, and the dead ones point at the slot that is there for them."""

import torch
from first_target import Decode


class AllRows(Decode):
    def forward(self, inputs):
        live = inputs["slots"] < 64
        return super().forward({**inputs, "slots": torch.where(live, inputs["slots"], 64)})


target = AllRows
