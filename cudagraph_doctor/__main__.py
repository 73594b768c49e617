"""`python -m cudagraph_doctor`: the same as the console script."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the working directory first: last, no file in it shadows the standard library
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.path.realpath("."):
        sys.path.append(sys.path.pop(0))

    from cudagraph_doctor.entry import main

    sys.exit(main())
