"""Runs scripts on forked ranks, which need no seconds to import torch.

    said = programs.run(2, SCRIPT, "--epochs", "1")  # what each rank prints

Other tests start processes, and so prove that users can start a script as the pages describe.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import pycollective as pc
from pycollective import testing

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}  # several threads would wait for each other on a busy machine
LATE_S = 100


def run(ranks: int, script: Path | str, *arguments: str, auto: bool = False) -> list[str]:
    """Runs the script. `auto`: as `python -m pycollective.torch.auto script arguments` does."""
    words = [str(script), *arguments]
    return testing.run(on_a_rank, ranks, words, auto, init=False, timeout_s=LATE_S, env=ENVIRONMENT)


def on_a_rank(words: Sequence[str], auto: bool) -> str:
    if auto:
        from pycollective.torch.auto import script

        with contextlib.redirect_stdout(io.StringIO()) as printed:
            script.main(words)
        return printed.getvalue()
    said = executed(words)
    pc.shutdown()  # as at the end of a process
    return said


def starting_ranks(script: Path | str, *arguments: str) -> str:
    """Returns the output in this process of a script that starts ranks by pc.run or pc.launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", ENVIRONMENT["OMP_NUM_THREADS"])
        patch.setattr(sys, "argv", [])
        patch.setattr(sys, "path", sys.path[:])
        return executed([str(script), *arguments])


def executed(words: Sequence[str]) -> str:
    sys.argv[:] = words
    sys.path.insert(0, os.path.dirname(words[0]))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(words[0], run_name="__main__")
    return printed.getvalue()
