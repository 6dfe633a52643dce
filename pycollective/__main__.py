"""`python -m pycollective` runs the command `pycollective`."""

import sys

from pycollective.cli import main

if __name__ == "__main__":
    sys.exit(main())
