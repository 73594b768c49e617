"""Targets whose temperature is 1 for the first steps, as long as no request asks for another, and 0.5 from LATE on."""

from __future__ import annotations

import os

import torch

LATE = 12
Inputs = dict[str, torch.Tensor]


class Loop:
    """A row of a table by index, over its temperature."""

    buckets = (2, 4)

    def __init__(self, device: str) -> None:
        self.device = device
        self.table = torch.arange(1.0, 9.0, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """All rows have the same temperature."""
        temperature = torch.full((n,), 1.0 if step < LATE else 0.5, device=self.device)
        return {"index": (torch.arange(n, device=self.device) + step) % 8, "temperature": temperature}

    def static_inputs(self, bucket: int) -> Inputs:
        """No request yet."""
        index = torch.zeros(bucket, dtype=torch.int64, device=self.device)
        return {"index": index, "temperature": torch.ones(bucket, device=self.device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copies both."""
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Scaled."""
        return self.table[inputs["index"]] / inputs["temperature"]

    def reset(self) -> None:
        """No state."""


class Forgets(Loop):
    """The temperature is never staged: right for as long as nobody asks for another."""

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copies the index alone."""
        static["index"][: len(fresh["index"])].copy_(fresh["index"])


class WhenItChanges(Loop):
    """Leaves the temperature alone as well, but not where it changes: sound."""

    def reset(self) -> None:
        """What is staged is not known."""
        self.staged: dict[int, float] = {}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copies the temperature if it is another one than it was, into all rows."""
        static["index"][: len(fresh["index"])].copy_(fresh["index"])
        asked = 1.0 if fresh["temperature"].cpu()[0] == 1 else 0.5
        bucket = len(static["index"])
        if self.staged.get(bucket, 1.0) != asked or bucket not in self.staged:
            static["temperature"].fill_(asked)
        self.staged[bucket] = asked


class Always(Loop):
    """The temperature is 1, and never staged."""

    def next_inputs(self, step: int, n: int) -> Inputs:
        """At step 0 for ever."""
        return {**super().next_inputs(step, n), "temperature": torch.ones(n, device=self.device)}

    update = Forgets.update


class Engine:
    """The same with staging of its own; the temperature is staged when `stages(step)` says so."""

    batch_sizes = (4,)

    def __init__(self, device: str) -> None:
        self.loop = Loop(device)
        self.static = self.loop.static_inputs(4)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.loop.forward(self.static)

    def reset(self) -> None:
        """No state."""

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.on = on

    def stages(self, i: int) -> bool:
        """Every second step has somebody who asks for a temperature."""
        return i % 2 == 0

    def step(self, i: int, n: int) -> torch.Tensor:
        """Step `i`."""
        fresh = self.loop.next_inputs(i, n)
        if not self.on:
            return self.loop.forward(fresh)
        self.static["index"].copy_(fresh["index"])
        if self.stages(i):
            self.static["temperature"].copy_(fresh["temperature"])
        self.graph.replay()
        return self.output


class OfPeers(Engine):
    """The index is in memory that peers write."""

    def untouchable(self) -> list[torch.Tensor]:
        """The buffer that they map."""
        return [self.static["index"]]


class ForgetfulEngine(Engine):
    """The first requests alone are asked for their temperature."""

    def stages(self, i: int) -> bool:
        """The plan that is asked for does not see the later ones."""
        return i < 2


class Ends(Forgets):
    """Its table has no rows for the steps behind those that are asked for."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.table = torch.arange(1.0, LATE + 1, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """A row further at each step."""
        return {**super().next_inputs(step, n), "index": torch.arange(n, device=self.device) + step}


class Dies(Forgets):
    """A temperature in its buffer that no step has staged is the end of the process."""

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copies the index alone."""
        if static["temperature"].cpu()[0] != 1:
            os._exit(3)
        super().update(static, fresh)


class Runner:
    """A runner with one graph; the temperature is staged for full batches alone."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.static = loop.static_inputs(4)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = loop.forward(self.static)

    def __call__(self, fresh: Inputs) -> torch.Tensor:
        """The rows of the batch."""
        n = len(fresh["index"])
        self.static["index"][:n].copy_(fresh["index"])
        if n == 4:
            self.static["temperature"].copy_(fresh["temperature"])
        self.graph.replay()
        return self.output[:n]
