"""Held objects outlive their last reference, and the interpreter."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from cudagraph_doctor.graph.lifetime import hold, let_go


class Thing:
    pass


def test_held_until_let_go_as_often() -> None:
    thing = hold(hold(Thing()))
    seen = weakref.ref(thing)
    let_go(thing)
    del thing
    gc.collect()
    held = seen()
    assert held is not None
    let_go(held)
    del held
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(("made", "printed"), [("Thing()", "destroyed\n"), ("hold(Thing())", "")])
def test_what_is_held_is_not_destroyed_at_the_end(made: str, printed: str) -> None:
    program = (
        "from cudagraph_doctor.graph.lifetime import hold\n"
        "class Thing:\n"
        "    def __del__(self): print('destroyed')\n"
        f"thing = {made}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
