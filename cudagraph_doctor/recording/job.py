"""What the parent tells the child that plays a target: plain JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from cudagraph_doctor.settings import Settings


@dataclass(frozen=True, slots=True)
class Job:
    """One recording of a target."""

    settings: Settings
    """Target, seed, steps, batch sizes."""
    profiler: str
    """"nsys": the child runs under it; "torch": the child uses torch.profiler and writes `output`."""
    output: str = ""
    ranges: bool = True
    """Whether steps and captures without a label of their own get one."""

    def dumps(self) -> str:
        """As one line."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps(plain | {"settings": self.settings.to_json()})

    @classmethod
    def loads(cls, text: str) -> Job:
        """Inverse of `dumps`."""
        plain = json.loads(text)
        return cls(**(plain | {"settings": Settings.from_json(plain["settings"])}))
