"""The command line: runs a script as `python` does, but in a world and with applied()."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence

import pycollective
from pycollective import _core
from pycollective.runtime import lifetime
from pycollective.torch.auto import REDUCTIONS, applied
from pycollective.torch.auto.replaced import replace

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> None:
    """Runs `python -m pycollective.torch.auto [options] [-m] program [arguments]`."""
    options = _parser().parse_args(words)
    world = lifetime.init()
    with contextlib.ExitStack() as undone:
        replace(undone, pycollective, "init", _world)
        replace(undone, pycollective, "shutdown", _later)
        if world.rank != 0 and not options.print_all:
            silence = undone.enter_context(open(os.devnull, "w"))
            undone.enter_context(contextlib.redirect_stdout(silence))
        undone.enter_context(applied(reduction=options.reduction))
        with _ends_well():
            _run(options.program, options.arguments, options.module)
    lifetime.shutdown()


def _run(program: str, arguments: Sequence[str], module: bool) -> None:
    sys.argv = [program, *arguments]
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    # safe_path exists since Python 3.11
    if os.path.isfile(program) and not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(program))
    runpy.run_path(os.path.abspath(program), run_name="__main__")


@contextlib.contextmanager
def _ends_well() -> Iterator[None]:
    """Treats sys.exit() with a success code as the normal end of the script."""
    try:
        yield
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _world(*_: object, **__: object) -> _core.Group:
    """Replaces pycollective.init() for scripts that call it: the world exists already."""
    return _core.world()


def _later(*, timeout: float | None = None) -> None:
    """Replaces pycollective.shutdown() for scripts that call it: the world ends after them."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pycollective.torch.auto",
        description="Run a PyTorch script written for one process, data parallel, under any launcher.",
    )
    parser.add_argument(
        "--reduction", choices=REDUCTIONS, default="mean", help="what losses are over a batch (default mean)"
    )
    parser.add_argument("--print-all", action="store_true", help="show what other ranks than 0 print, too")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser
