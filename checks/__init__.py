"""The checks: one module each, found by their command-line word in `CHECKS` and imported only when they run.

A check is a module with the members of `Check`; adding one is a module here, a row in `CHECKS` and a command in `cli`.
"""

if __name__ != "cudagraph_doctor.checks":
    raise ImportError("import cudagraph_doctor.checks, not checks")

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cudagraph_doctor.findings import Outcome
    from cudagraph_doctor.graph.backend import Backend
    from cudagraph_doctor.progress import Progress
    from cudagraph_doctor.settings import Settings


class Check(Protocol):
    """What a check's module offers."""

    NAME: str
    """The command-line word, also in reports."""
    RULES: tuple[str, ...]
    """The codes it can emit."""
    NEEDS: frozenset[str]
    """What it works on: {"target"}, {"trace"}, {"configuration"}."""

    def run(self, target: object, backend: "Backend", settings: "Settings", progress: "Progress") -> "Outcome":
        """Do the check. Raises DoctorError when it cannot do its job.

        A check that needs a trace or a configuration takes files and demands instead (see `bucket_hits.run`,
        `bucket_audit.run`): it runs without a worker.
        """


CHECKS: dict[str, str] = {
    "diff": "eager_diff",
    "capture": "capture_ops",
    "inputs": "replay_inputs",
    "buckets": "bucket_hits",
    "audit": "bucket_audit",
}
"""Command-line word -> module in this package, in the order in which they are run."""
