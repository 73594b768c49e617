"""What CUDA refuses in a capture and the emulation lets pass. Made by `capture_cases.py --list`."""

from __future__ import annotations

NOT_REFUSED: tuple[str, ...] = ()
"""By the names of the cases there."""
