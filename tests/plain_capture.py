"""What torch alone says when a planted fault is captured: `python tests/plain_capture.py NAME [--twin] [--device D]`.

Prints JSON: {"raised": what the user sees, "first": the first error of its chain, "raised_at" and "first_at":
"file.py:line" of the innermost line of the model that their stacks have, "" if none}; all "" if the capture succeeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from cudagraph_doctor import reference_models
from cudagraph_doctor.graph.emulated import EmulatedBackend

ROWS = 4


def capture(target: Any) -> Any:
    """Capture a target as torch's documentation does it; an engine by its own switch. What it gives back lives on.

    Raises whatever the capture raises.
    """
    if hasattr(target, "graphs"):
        target.graphs(True)
        return target
    static = target.static_inputs(ROWS)
    target.update(static, target.next_inputs(3, ROWS))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            target.forward(static)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = target.forward(static)
    return graph, static, outputs


def told(error: BaseException | None) -> dict[str, str]:
    """An exception as the module's docstring says."""
    if error is None:
        return {"raised": "", "first": "", "raised_at": "", "first_at": ""}
    first = error
    while first.__context__ is not None:
        first = first.__context__
    return {
        "raised": _in_short(error),
        "first": _in_short(first),
        "raised_at": _line_of_the_model(error),
        "first_at": _line_of_the_model(first),
    }


def _line_of_the_model(error: BaseException) -> str:
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "reference_models" in frame.filename]
    return f"{Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""


def _in_short(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def attempt(name: str, twin: bool, device: str) -> dict[str, str]:
    """Make the target, capture it, tell what came of it."""
    target = reference_models.load(device=device, fault=name, twin=twin, preset="tiny")
    try:
        held = capture(target)
        torch.cuda.synchronize()
        del held
    except Exception as error:
        return told(error)
    return told(None)


def main() -> None:
    """Try one variant, on a GPU or on the emulated device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--twin", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu:0"), default="cuda")
    options = parser.parse_args()
    sys.stdout.flush()
    if options.device == "cuda":
        answer = attempt(options.name, options.twin, "cuda")
    else:
        with EmulatedBackend().installed():
            answer = attempt(options.name, options.twin, "cpu:0")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
