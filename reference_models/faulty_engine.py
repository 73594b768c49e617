"""Faults planted into `ReferenceEngine`, each beside its clean twin (see `faults.py`)."""

from __future__ import annotations

import torch

from cudagraph_doctor.reference_models.engine import ReferenceEngine

Outputs = dict[str, torch.Tensor]

# kept-output-overwritten


class KeptOutputOverwritten(ReferenceEngine):
    """What was likely in the step before is made less likely now; what is kept for that is a static output."""

    kept: tuple[int, torch.Tensor] | None = None
    """A step, and its logits."""

    def finish(self, i: int, outputs: Outputs) -> Outputs:
        """Apply the penalty."""
        logits = outputs["logits"].clone()
        if self.kept and self.kept[0] == i - 1:
            before = self.kept[1][: len(logits)]
            logits[: len(before)] -= 0.5 * before
        self.kept = (i, self.keep(outputs["logits"]))
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}

    def keep(self, logits: torch.Tensor) -> torch.Tensor:
        """What the next step will look at."""
        return logits

    def reset(self) -> None:
        """Caches as before step 0, nothing kept."""
        super().reset()
        self.kept = None


class KeptOutputCloned(KeptOutputOverwritten):
    """A clone is kept."""

    def keep(self, logits: torch.Tensor) -> torch.Tensor:
        """What the next step will look at."""
        return logits.clone()


# missing-reverse-event


class MissingReverseEvent(ReferenceEngine):
    """Right as long as the host is slower than the device."""

    def wait_until_consumed(self, half: str) -> None:
        """Nothing is waited for."""


class ReverseEdgeByStream(ReferenceEngine):
    """The whole compute stream is waited for: less overlap, same order."""

    def wait_until_consumed(self, half: str) -> None:
        """The copy stream goes on when all that was launched so far is done."""
        self.copy_stream.wait_stream(torch.cuda.current_stream())


PLANTED: dict[str, tuple[type[ReferenceEngine], type[ReferenceEngine]]] = {
    "kept-output-overwritten": (KeptOutputOverwritten, KeptOutputCloned),
    "missing-reverse-event": (MissingReverseEvent, ReverseEdgeByStream),
}
"""Fault and clean twin by the fault's name."""
