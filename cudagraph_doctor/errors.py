"""Errors that a user can mend: what was wrong, what was seen, what to do.

Everything else that escapes is our own bug (exit 4). `cli` maps each class to the exit code it carries.
"""


class DoctorError(Exception):
    """A failure that the user can mend; printed as three short lines, never as a traceback.

    Args:
        what: what was wrong, and where.
        seen: what was found instead (may be empty).
        fix: one sentence: a command or an edit that helps. Never empty.
        traceback: the user's own stack, where there is one; shown with --debug.
    """

    exit_code = 3

    def __init__(self, what: str, *, seen: str = "", fix: str, traceback: str = "") -> None:
        if not fix:
            raise ValueError("a DoctorError needs a fix")
        super().__init__(what)
        self.what = what
        self.seen = seen
        self.fix = fix
        self.traceback = traceback

    def __str__(self) -> str:
        lines = [self.what]
        if self.seen:
            lines.append(f"  seen: {self.seen}")
        lines.append(f"  fix:  {self.fix}")
        return "\n".join(lines)


class UsageError(DoctorError):
    """The command line, a setting or the target is not usable as given (exit 2)."""

    exit_code = 2


class TargetError(UsageError):
    """The target cannot be loaded or does not keep the contract (exit 2)."""


class Inconclusive(DoctorError):
    """The question cannot be answered here: missing data, missing GPU, not finished (exit 3)."""

    exit_code = 3
