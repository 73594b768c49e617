"""Copies and random numbers in a captured step, each beside its clean twin (see `capture_faults.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from cudagraph_doctor.reference_models.decode import DecoderConfig
from cudagraph_doctor.reference_models.faulty_capture import Sampler, behind
from cudagraph_doctor.reference_models.inputs import DecodeInputs
from cudagraph_doctor.reference_models.loop import ReferenceLoop

# tensor-from-list


class ConstantInStep(Sampler):
    """A list goes from the host to the device in every step."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum of the first two columns."""
        weights = torch.tensor([0.75, 0.25], device=self.device)  # planted: tensor-from-list CGD203
        self.seen.copy_((logits[:, :2] * weights).sum())


class ConstantBefore(Sampler):
    """Once."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.weights = torch.tensor([0.75, 0.25], device=device)

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum of the first two columns."""
        self.seen.copy_((logits[:, :2] * self.weights).sum())


# pageable-copy, blocking-pinned-copy


class Biased(Sampler):
    """A bias that the host may change between steps."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.bias = torch.zeros(config.vocab_size, device=device)
        self.bias_on_host = torch.zeros(config.vocab_size)


class PageableCopy(Biased):
    """From memory that the system may move."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Refresh the bias."""
        self.bias.copy_(self.bias_on_host, non_blocking=True)  # planted: pageable-copy CGD203


class BiasPinned(Biased):
    """From memory that stays where it is."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.bias_on_host = self.bias_on_host.pin_memory()

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Refresh the bias."""
        self.bias.copy_(self.bias_on_host, non_blocking=True)


class BlockingCopy(BiasPinned):
    """The host waits."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Refresh the bias."""
        self.bias.copy_(self.bias_on_host)  # planted: blocking-pinned-copy CGD203


# index-by-list


class ColumnsByList(Sampler):
    """The list becomes a tensor on the host, and is copied."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of two columns."""
        self.seen.copy_(logits[:, [1, 3]].sum())  # planted: index-by-list CGD203


class ColumnsByTensor(Sampler):
    """The indices are there already."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.columns = torch.tensor([1, 3], device=device)

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of two columns."""
        self.seen.copy_(logits[:, self.columns].sum())


# unregistered-generator


class NoiseOfItsOwn(Sampler):
    """A generator of its own, so that nobody else's draws change the sampler's."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.noise = torch.zeros(config.vocab_size, device=device)
        self.generator = torch.Generator(device)

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Draw what sampling at a temperature would need."""
        self.noise.exponential_(generator=self.generator)  # planted: unregistered-generator CGD206


class NoiseByDefault(NoiseOfItsOwn):
    """The generator that torch registers on every graph."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Draw what sampling at a temperature would need."""
        self.noise.exponential_()


# manual-seed


class SeededInStep(NoiseOfItsOwn):
    """So that no two runs draw the same. A capture would take the seed that the generator has already."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Seed, and draw."""
        torch.cuda.manual_seed(time.monotonic_ns())  # planted: manual-seed CGD206
        self.noise.exponential_()


class SeededOnce(NoiseOfItsOwn):
    """Every step draws something else."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        torch.cuda.manual_seed(0)

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Draw."""
        self.noise.exponential_()


# host-source-dies


class SourceDropped(Biased):
    """Takes a pinned buffer from a list and lets it go: torch gives its memory to the next who asks."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.spare = [self.pinned() for _ in range(256)]

    def pinned(self) -> torch.Tensor:
        """A bias in pinned memory. Shape (vocab,), float32."""
        return torch.zeros(self.vocab_size).pin_memory()

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Refresh the bias."""
        source = self.spare.pop() if self.spare else self.pinned()
        self.bias.copy_(source, non_blocking=True)  # planted: host-source-dies CGD216


PLANTED: dict[str, tuple[Callable[..., ReferenceLoop], Callable[..., ReferenceLoop]]] = {
    "tensor-from-list": (behind(ConstantInStep), behind(ConstantBefore)),
    "pageable-copy": (behind(PageableCopy), behind(BiasPinned)),
    "blocking-pinned-copy": (behind(BlockingCopy), behind(BiasPinned)),
    "index-by-list": (behind(ColumnsByList), behind(ColumnsByTensor)),
    "unregistered-generator": (behind(NoiseOfItsOwn), behind(NoiseByDefault)),
    "manual-seed": (behind(SeededInStep), behind(SeededOnce)),
    "host-source-dies": (behind(SourceDropped), behind(BiasPinned)),
}
"""Fault and clean twin by the fault's name."""
