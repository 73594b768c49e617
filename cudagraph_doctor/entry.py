"""The console script: imports the program inside `try`, so that an interrupt is one from the first moment to the last.

Nothing is imported above it, for the same reason.
"""

import sys

_INTERRUPTED = 130  # policy.INTERRUPTED, which is not imported yet


def main() -> int:
    """Run the command line; returns the exit code. An interrupt that comes later finds nothing left to end."""
    try:
        import signal

        from cudagraph_doctor.cli import main as run

        code = run()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:
        sys.stderr.write("cudagraph-doctor: interrupted\n")
        return _INTERRUPTED
