"""`python -m cudagraph_doctor`: the same as the console script."""

import sys

from cudagraph_doctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
