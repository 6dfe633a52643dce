"""Starts a rank in an interpreter that has no pycollective: `python start.py SPEC.json`.

It makes a substitute for the package, without the imports of its __init__, so that the rank's
modules can be imported from this folder.
"""

import json
import sys
import types
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    # removes this folder, because its modules could hide a library's module of the same name
    sys.path[:] = sys.path[1:]
    package = types.ModuleType("pycollective")
    package.__path__ = [str(here.parent.parent)]
    sys.modules["pycollective"] = package
    from pycollective.tools.compare.rank import run

    run(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
