"""An interrupt is exit code 130 and one line, also while the program is being imported, and nothing when it is done."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

_CALL = "import sys; from cudagraph_doctor.entry import main; sys.argv[1:] = ['rules']; sys.exit(main())"


@pytest.mark.parametrize("imported", ["click", "cudagraph_doctor.cli", "rich.console", "json"])
def test_interrupted_while_importing(fake_world: FakeWorld, imported: str) -> None:
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {imported!r}:
            raise KeyboardInterrupt
sys.modules.pop({imported!r}, None)
sys.meta_path.insert(0, Interrupting())
{_CALL}
"""
    done = fake_world.python(program)
    assert (done.returncode, done.stderr) == (130, "cudagraph-doctor: interrupted\n")
    assert done.stdout == ""


def test_interrupted_when_all_is_done(fake_world: FakeWorld) -> None:
    late = f"import atexit, os; atexit.register(os.kill, os.getpid(), {int(signal.SIGINT)}); "
    done = fake_world.python(late + _CALL)
    assert done.returncode == 0, done.stderr
    assert "CGD101" in done.stdout
    assert done.stderr == ""


def test_the_exit_code_is_passed_on(fake_world: FakeWorld) -> None:
    assert fake_world.python(_CALL.replace("rules", "no-such-command")).returncode == 2
