"""PyTorch's own DistributedTest passes on our backend, as the lists in distributed_suite state.

Tests that torch skips because of the backend's name, the size of the world or a missing CUDA are
listed with torch's reason, so that a pass that becomes a skip is seen. The second list with 2 ranks
is for the backend that replaces gloo by PYCOLLECTIVE_REPLACES, where torch skips no test because of
the name. The daily run takes some of the tests that pass under both names, with 2 ranks and under
one of the names. The full run (sampled.py) takes everything, with 2 ranks for gloo and with 4 by
name.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sampled
from launchers import torch
from sampled import FULL

DEADLINE_S = 600.0 if FULL else 240.0
HERE = Path(__file__).parent / "distributed_suite"
SUITE = "TestDistBackend"
DAILY = 16  # of 68 passes

if torch() is not None:
    pytest.skip(str(torch()), allow_module_level=True)
pytest.importorskip("expecttest", reason="torch.testing needs it")


@dataclass(frozen=True)
class Listed:
    """The contents of a list. `lines` has one line per name, unchanged."""

    path: Path
    torch: str  # the version with which the list was made
    lines: dict[str, str]

    def passes(self) -> set[str]:
        return {name for name, line in self.lines.items() if line.startswith("pass ")}

    def only(self, names: list[str]) -> Listed:
        """Returns the lines of these names, or all if there are none."""
        return replace(self, lines={name: self.lines[name] for name in names or self.lines})


def read(path: Path) -> Listed:
    first, *lines = path.read_text().splitlines()
    return Listed(path, first.removeprefix("# torch "), {line.split()[1].rstrip(":"): line for line in lines})


def torch_version() -> str:
    return importlib.metadata.version("torch").partition("+")[0]


def line_of(case: ElementTree.Element) -> str:
    """Returns the line of this outcome in a list, with more words if a list may not contain it."""
    name = case.attrib["name"]
    for each in case:
        if each.tag == "skipped":
            return f"skip {name}: {each.attrib['message']}"
        if each.tag in ("failure", "error"):
            return f"{each.tag} {name}\n{each.text}"
    return f"pass {name}"


def run(ranks: int, backend: str, names: list[str], folder: Path) -> dict[str, str]:
    """Returns the outcomes of those tests, or of all if there are no names, as lines of a list."""
    report, temporary = folder / "report.xml", folder / "tmp"
    temporary.mkdir()
    runner = HERE / "runner.py"
    environment = {
        **os.environ,
        "BACKEND": backend,
        "PYCOLLECTIVE_REPLACES": "" if backend == "pycollective" else backend,
        "WORLD_SIZE": str(ranks),
        "TEMP_DIR": str(temporary),  # torch's
        "TMPDIR": str(temporary),  # Python's
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # torch skips every test if all ranks have one GPU
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "60",
        "PYTHONHASHSEED": "0",  # some reasons are sets
    }
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"),
        *("-c", os.devnull, "--rootdir", str(folder), f"--junitxml={report}"),
        *([f"{runner}::{SUITE}::{name}" for name in names] or [str(runner)]),
    ]
    with (folder / "out").open("w+") as out:
        suite = subprocess.Popen(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            suite.wait(DEADLINE_S)
        finally:
            if suite.poll() is None:
                os.killpg(suite.pid, signal.SIGKILL)  # the ranks too
                suite.wait()
        out.seek(0)
        assert suite.returncode in (0, 1), out.read()  # else there are no results: a name is unknown
    cases = ElementTree.parse(report).iter("testcase")
    return {case.attrib["name"]: line_of(case) for case in cases}


def complaints(listed: Listed, found: dict[str, str], *, same_torch: bool) -> list[str]:
    """Returns what is wrong, and which line to change in an outdated list."""
    known = {name for name, line in listed.lines.items() if line.startswith("fail ")}
    wrong = [
        line for name, line in found.items() if name not in known and not line.startswith(("pass ", "skip "))
    ]
    for name in sorted(listed.lines.keys() | found.keys()):
        old, new = listed.lines.get(name), found.get(name)
        if new in wrong or old == new or (name in known and new != f"pass {name}"):
            continue
        if name in listed.passes():
            if new is not None or same_torch:
                wrong.append(f"{name} no longer passes: {new or 'it did not run'}")
        elif same_torch and (FULL or new is not None):
            wrong.append(f"{listed.path.name}: put {new!r} in place of {old!r}")
    return wrong


@pytest.mark.timeout(DEADLINE_S + 30)
@pytest.mark.parametrize(
    ("ranks", "backend"),
    [(2, "gloo"), (4, "pycollective")]
    if FULL
    else sampled.some([(2, "gloo"), (2, "pycollective")], 1, of="distributed suite"),
)
def test_the_tests_that_torch_has_for_its_backends_pass_on_ours(
    ranks: int, backend: str, tmp_path: Path
) -> None:
    listed = read(HERE / f"{ranks}_ranks_{backend}.txt")
    same_torch = listed.torch == torch_version()
    # Another version of torch may lack some of the names.
    names = [] if FULL or not same_torch else sampled.some(sorted(listed.passes()), DAILY)
    wrong = complaints(listed.only(names), run(ranks, backend, names, tmp_path), same_torch=same_torch)
    assert not wrong, "\n".join(wrong)


def test_the_lists_are_sorted_and_have_not_lost_a_pass() -> None:
    for name, passes in (("2_ranks_pycollective", 68), ("2_ranks_gloo", 89), ("4_ranks_pycollective", 71)):
        listed = read(HERE / f"{name}.txt")
        assert list(listed.lines) == sorted(listed.lines)
        assert len(listed.lines) == 285
        assert len(listed.passes()) >= passes
