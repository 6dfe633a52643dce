"""The package stays small: what is compiled is there once, and a wheel has at most 3 MiB."""

from __future__ import annotations

import zlib
from pathlib import Path

import pycollective as pc
from pycollective import _core

MOST_NBYTES = 3 << 20


def test_what_a_wheel_contains_fits_into_3_mib_compressed() -> None:
    compiled = [
        path for path in Path(_core.__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    sources = list(Path(pc.__file__).parent.rglob("*.py"))
    nbytes = {path: len(zlib.compress(path.read_bytes())) for path in {*compiled, *sources}}
    largest = sorted(nbytes, key=nbytes.__getitem__, reverse=True)[:5]
    assert sum(nbytes.values()) <= MOST_NBYTES, {path.name: nbytes[path] for path in largest}
