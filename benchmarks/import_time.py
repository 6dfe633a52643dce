"""The time that `import pycollective` adds to NumPy's import: best and median of new interpreters.

Units: ms. Exits with 1 if the best time is above 20 ms.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys

from pycollective.launching.run_command import positive

MOST_MS = 20.0


def added_ms() -> float:
    """Returns the milliseconds for pycollective and its imports, after NumPy has been imported."""
    command = [sys.executable, "-X", "importtime", "-c", "import numpy, pycollective"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    found = re.search(r"\|\s*(\d+) \| pycollective$", listing, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no line for pycollective in:\n{listing}")
    return int(found[1]) / 1000


def main() -> int:
    """Prints both figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?", type=positive, default=11, help="fresh interpreters (default 11)")
    figures = [added_ms() for _ in range(parser.parse_args().runs)]
    print(f"import pycollective: best {min(figures):.1f} ms, median {statistics.median(figures):.1f} ms")
    return 0 if min(figures) <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
