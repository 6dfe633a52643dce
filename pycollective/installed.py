"""Finds the installed package for programs that import the source folder of a clone.

The source folder itself has no compiled module.
"""

import filecmp
import os
import sys
from importlib.machinery import PathFinder


def installed_folder(sources: str) -> str:
    """Return the first folder of the package on `sys.path` that has the compiled module.

    `sources` is the source folder, which is skipped.
    """
    for entry in sys.path:
        folder = os.path.join(entry, "pycollective")
        if os.path.exists(f"{folder}/__init__.py") and PathFinder.find_spec("pycollective._core", [folder]):
            break
    else:
        raise ImportError(
            f"there is no compiled module in {sources}, the source folder, and pycollective is not installed here "
            f"({sys.executable}): run `pip install .` in the clone, or scripts/setup and use its .venv"
        )
    if not filecmp.cmp(f"{sources}/__init__.py", f"{folder}/__init__.py", shallow=False):
        raise ImportError(
            f"{sources}, the source folder, comes first on sys.path, and what is installed in {folder} is of another "
            "version of it: run `pip install .` in the clone again, or start the program in another folder"
        )
    return folder
