"""Where the installed package is, for programs that find the source folder of a clone, which has no compiled module."""

import os
import sys
from importlib.machinery import PathFinder


def installed_folder(sources: str) -> str:
    """The first folder of the package on `sys.path` that has the compiled module, which `sources` has not."""
    for entry in sys.path:
        folder = os.path.join(entry, "pycollective")
        if os.path.exists(f"{folder}/__init__.py") and PathFinder.find_spec("pycollective._core", [folder]):
            return folder
    raise ImportError(
        f"there is no compiled module in {sources}, the source folder, and pycollective is not installed here "
        f"({sys.executable}): run `pip install .` in the clone, or scripts/setup and use its .venv"
    ) from None
