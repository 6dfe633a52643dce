"""Which libpmix is loaded. test_launchers.py tests its protocol with real mpiruns."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycollective.bootstrap.kvs.pmix_library import NAME, candidates, load


def test_libpmix_is_looked_for_beside_the_mpirun_that_started_us(tmp_path: Path) -> None:
    for prefix in ("pmix", "opal", "mpirun"):
        (tmp_path / prefix / "lib/openmpi").mkdir(parents=True)
        (tmp_path / prefix / "lib/openmpi" / NAME).touch()
    mpirun = tmp_path / "mpirun/bin/mpirun"
    mpirun.parent.mkdir()
    mpirun.touch(0o755)
    environment = {
        "PMIX_PREFIX": str(tmp_path / "pmix"),
        "OPAL_PREFIX": str(tmp_path / "opal"),
        "PATH": str(mpirun.parent),
    }
    paths = [path for path, _ in candidates(environment)]
    found = [
        path.removeprefix(str(tmp_path)).split("/")[1] for path in paths if path.startswith(str(tmp_path))
    ]
    assert found == ["pmix", "opal", "mpirun"]
    assert paths[0] == NAME  # a loaded library precedes them
    assert NAME in paths[4:]  # the library of the system follows them


def test_without_libpmix_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pycollective.bootstrap.kvs.pmix_library.NAME", "libpmix-there-is-none.so")
    with pytest.raises(Exception, match=r"OMPI_COMM_WORLD_SIZE=4.*cannot be loaded.*LD_LIBRARY_PATH") as info:
        load({"OMPI_COMM_WORLD_SIZE": "4", "PATH": ""})
    assert type(info.value).__name__ == "Unsupported"
