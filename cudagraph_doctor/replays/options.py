"""Options of `inputs`: what is kept of a run (`--db`, `--repro`), what is looked at again (`--from`, `--show`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Finding
from cudagraph_doctor.replays import matrix, repro, show, store
from cudagraph_doctor.replays.model import History


@dataclass(frozen=True, slots=True)
class Keep:
    """Where a run goes besides its report."""

    db: Path | None = None
    """The run store that it is added to."""
    scripts: Path | None = None
    """The folder that scripts for confirmed findings are written into."""

    def check(self) -> None:
        """Refuse before the run what could not be written after it. Raises UsageError."""
        if self.db is not None:
            store.check_writable(self.db)
        if self.scripts is not None and self.scripts.exists() and not self.scripts.is_dir():
            raise UsageError(f'"{self.scripts}" is a file.', fix="Give --repro a folder.")

    def keep(self, history: History, findings: Sequence[Finding], app_dir: Path, *, values: bool = True) -> list[str]:
        """Write what was asked for.

        Args:
            history: what was seen.
            findings: what was made of it, as it may be shown.
            app_dir: the folder that the target's module was imported from.
            values: whether what memory held may be stored.

        Returns:
            What was written, in sentences.

        Raises:
            UsageError: something cannot be written.
        """
        told = []
        if self.db is not None:
            run = store.save(self.db, history, findings, values=values)
            told.append(f"Run {run} is in {self.db}: `cudagraph-doctor inputs --from {self.db}` looks at it again.")
        if self.scripts is not None:
            files = repro.write(self.scripts, repro.scripts(history, findings, app_dir))
            told += [f"{file} shows the fault with torch alone." for file in files]
            if not files:
                told.append(f"No script was written: nothing confirmed can be played. {repro.command(history.run)}")
        return told


@dataclass(frozen=True, slots=True)
class Again:
    """A stored run that is looked at again, without target, torch or GPU."""

    source: Path
    """The run store."""
    run: int | None = None
    """Which of its runs; None: the last one."""
    show: str = ""
    """A tensor whose history is asked for; "" for the whole run."""

    def history(self) -> History:
        """The run. Raises UsageError if it cannot be read."""
        return store.load(self.source, self.run)

    def parts(self, history: History, width: int) -> list[RenderableType]:
        """What is asked for, to be laid out. Raises UsageError if nothing in the run has the name."""
        return show.parts(history, self.show) if self.show else matrix.parts(history, width)


def again(spec: str | None, source: Path | None, run: int | None, name: str, keep: Keep) -> Again | None:
    """What is looked at again; None if a target is to be run.

    Raises:
        UsageError: options that say different things.
    """
    if source is None:
        for option, given in (("--show", name), ("--run", run is not None)):
            if given:
                raise UsageError(f"{option} is about a stored run, and none is named.", fix="Add --from FILE.")
        return None
    if spec is not None:
        raise UsageError(
            f'--from looks at a stored run; the target "{spec}" would not be run.', fix="Leave out one of the two."
        )
    if keep.db is not None:
        raise UsageError("--db stores a run, and --from runs nothing.", fix="Leave out one of the two.")
    return Again(source, run, name)
