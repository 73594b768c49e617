"""Copies of pinned memory, made to come out at once: which ones are mended, and whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.proof.at_once import AtOnce

HERE = Path(__file__).resolve()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """All memory of the host counts as pinned; "meta" stands in for a device."""
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self.device.type == "cpu")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def line_of(text: str) -> int:
    return 1 + next(n for n, line in enumerate(HERE.read_text().splitlines()) if line.strip().endswith(f"# {text}"))


@pytest.mark.usefixtures("pinned")
def test_copies_on_the_host_are_left_alone() -> None:
    waited: list[int] = []
    with AtOnce(wait=lambda: waited.append(1)) as mend:
        torch.zeros(2).copy_(torch.ones(2))
    assert not waited and not mend.mended


@pytest.mark.usefixtures("pinned")
def test_a_copy_to_the_device_is_known_by_name_and_lines() -> None:
    host, device = torch.zeros(2), torch.zeros(2, device="meta")
    address = host.untyped_storage().data_ptr()
    with AtOnce(names=lambda at: "engine.host" if at == address else "") as mend:
        host.fill_(3)  # written
        device.copy_(host[:2], non_blocking=True)  # copied
    (copied,) = mend.mended
    assert (copied.name, copied.to_host) == ("engine.host", False)
    assert copied.line is not None and (Path(copied.line.file), copied.line.line) == (HERE, line_of("copied"))
    assert mend.written[address].line == line_of("written")


@pytest.mark.usefixtures("pinned")
def test_a_copy_out_of_a_buffer_reads_one_of_its_own() -> None:
    host, read = torch.zeros(2), list[int]()

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.copy_.default:
                read.append(args[1].data_ptr())
            return func(*args, **(kwargs or {}))

    with Below(), AtOnce():  # type: ignore[no-untyped-call, unused-ignore]
        torch.zeros(2, device="meta").copy_(host)
    with Below(), AtOnce(only=[]):  # type: ignore[no-untyped-call, unused-ignore]
        torch.zeros(2, device="meta").copy_(host)
    assert read[0] != host.data_ptr() == read[1]


@pytest.mark.usefixtures("pinned")
def test_the_host_waits_behind_a_copy_to_it() -> None:
    waited, target = list[int](), torch.zeros(2)

    class Arriving(TorchDispatchMode):
        """Nothing comes from "meta"."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] if func is torch.ops.aten.copy_.default else func(*args, **(kwargs or {}))

    with Arriving(), AtOnce(wait=lambda: waited.append(1)) as mend:  # type: ignore[no-untyped-call, unused-ignore]
        target.copy_(torch.zeros(2, device="meta"))
    assert waited == [1] and [copied.to_host for copied in mend.mended] == [True]
