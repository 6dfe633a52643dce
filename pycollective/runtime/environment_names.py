"""The names of pycollective's environment variables, for a warning about misspelt names."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Mapping

__all__ = ["PREFIX", "known", "nearest", "unknown", "warn_of_unknown"]

PREFIX = "PYCOLLECTIVE_"
# Names that docs/environment.md does not list. The launcher sets them for the program or for
# pc.progress(), or pycollective's own scripts and tests use them.
UNLISTED = re.compile(
    r"PYCOLLECTIVE_(RESTART_COUNT|TERMINAL|FLAKES|PARTS|TEST_\w+|TORCH|TORCH_INDEX|REQUIRE_GPU|GPU_PYTHON|CASES_LEFT_OUT"
    r"|CASE_TIMEOUT_S)"
)
_warned = False


def known(markdown: str) -> frozenset[str]:
    """Return the names that docs/environment.md lists."""
    return frozenset(re.findall(r"^- `(PYCOLLECTIVE_\w+)` \(", markdown, re.MULTILINE))


def unknown(env: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the PYCOLLECTIVE_ variables in `env` that pycollective does not know."""
    mine = {name for name in env if env[name] and name.startswith(PREFIX) and not UNLISTED.fullmatch(name)}
    return sorted(mine.difference(names))


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`, or "" if none is similar."""
    short = [each.removeprefix(PREFIX) for each in names]
    found = difflib.get_close_matches(name.removeprefix(PREFIX), short, 1)
    return PREFIX + found[0] if found else ""


def warn_of_unknown(stacklevel: int) -> None:
    """Warn once per process, about all unknown variables in one warning."""
    global _warned
    from pycollective import _core

    names = known(_core.environment_markdown())
    if _warned or not (wrong := unknown(os.environ, names)):
        return
    _warned = True
    hints = [f"{name} (did you mean {near}?)" if (near := nearest(name, names)) else name for name in wrong]
    warnings.warn(
        f"pycollective: nothing reads the environment variable{'s' * (len(wrong) > 1)} {', '.join(hints)}. "
        "`pycollective env` lists those that are read",
        stacklevel=stacklevel + 1,
    )
