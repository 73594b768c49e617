"""Three faults in the gpt-fast style loop, each what one forgets when writing such a loop by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import gpt_fast_style as sound

Inputs = dict[str, torch.Tensor]


class PositionNotStaged(sound.Generator):
    """The position buffer keeps what it had at capture: every key lands on the same slot."""

    def stage(self, fresh: Inputs) -> None:
        """All but the position."""
        self.static["token"].copy_(fresh["token"])
        self.static["temperature"].copy_(fresh["temperature"])


class TemperatureByValue(sound.Generator):
    """Captures at its first step, with that step's temperature as a Python number."""

    def capture(self) -> None:
        """Not yet: the temperature is not known."""

    def decode(self, fresh: Inputs) -> torch.Tensor:
        """Capture if need be, stage, replay."""
        if not hasattr(self, "graph"):
            temperature = float(fresh["temperature"])
            self.stage(fresh)
            self.graph = torch.cuda.CUDAGraph()
            token, input_pos = self.static["token"], self.static["input_pos"]
            sound.probabilities(self.model, token, input_pos, temperature)
            with torch.cuda.graph(self.graph):
                self.output = sound.probabilities(self.model, token, input_pos, temperature)
        return super().decode(fresh)


class Faulty(sound.GptFast):
    """The target with one of the faults."""

    def __init__(self, device: str, fault: str, seed: int = 0) -> None:
        super().__init__(device, seed)
        self.fault = fault
        self.generators_made = 0

    def graphed(self) -> Callable[[Inputs], torch.Tensor]:
        """The faulty generator; or, once, a sound one whose caches are set up again after its capture."""
        self.generators_made += 1
        if self.fault == "input_pos":
            return PositionNotStaged(self.model, self.device).decode
        if self.fault == "temperature":
            return TemperatureByValue(self.model, self.device).decode
        if self.fault != "caches":
            raise ValueError(f"no fault {self.fault!r}: input_pos, temperature or caches")
        if self.generators_made > 1:
            return super().graphed()
        self.model.setup_caches(self.device)
        decode = super().graphed()
        self.model.setup_caches(self.device)
        return decode


target = Faulty
