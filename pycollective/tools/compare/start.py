"""Starts a rank in an interpreter that has no pycollective: `python start.py SPEC.json`.

A stand-in for the package, without what its __init__ loads, so that the rank's own modules are found here.
"""

import json
import sys
import types
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = sys.path[1:]  # this folder: nothing in it may stand in for another library's module
    package = types.ModuleType("pycollective")
    package.__path__ = [str(here.parent.parent)]
    sys.modules["pycollective"] = package
    from pycollective.tools.compare.rank import run

    run(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
