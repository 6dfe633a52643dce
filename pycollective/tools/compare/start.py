"""Starts a rank in an interpreter that has no pycollective: `python start.py SPEC.json`.

It makes an empty package `pycollective`, without the imports of the real __init__.py, so that the
modules of this folder can be imported.
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
