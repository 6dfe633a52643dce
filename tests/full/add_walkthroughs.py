"""What docs/add adds works: each diff is applied to a copy of the repository and tested there.

Takes minutes, because each copy is built: `scripts/test full`. Names of pages as arguments select
these pages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from add_pages import PAGES, ROOT, Page

DEADLINE_S = 1800.0  # of one command: a build on a busy machine of two cores
TOOLS = Path(sys.executable).parent  # cmake and ninja are there
PACKAGES = Path(sysconfig.get_path("purelib"))
# Not the Python of the virtual environment: there an editable pycollective precedes any path.
PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
PLAN = (PYTHON, "-m", "pycollective", "plan")


class Failed(Exception):
    """A walk-through did not end as its page states."""


class Copy:
    """The repository's files without their history, and one page's diff applied to them."""

    def __init__(self, tree: Path, page: Page) -> None:
        self.tree = tree
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
        self.run("git", "init", "--quiet")
        self.run("git", "add", "--all")
        applied = page.apply(tree)
        if applied.returncode != 0:
            raise Failed(f"git apply: {applied.stderr}")
        changed = {
            line[3:]
            for line in self.run("git", "status", "--porcelain", "-uall").splitlines()
            if line[1] != " "
        }
        if changed != page.files:
            raise Failed(f"touches {sorted(changed)}, but the page names {sorted(page.files)}")

    def run(self, *command: str, **environment: str) -> str:
        """Returns what a command prints that runs in the copy with the copy's package."""
        path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
        packages = f"{self.tree}{os.pathsep}{PACKAGES}"
        done = subprocess.run(
            command,
            cwd=self.tree,
            env={**os.environ, "PATH": path, "PYTHONPATH": packages, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def build(self, *targets: str) -> None:
        python = ["-DPYCOLLECTIVE_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"]
        self.run("cmake", "--preset", "dev", "-G", "Ninja", *python)
        self.run("ninja", "-C", "build/dev", *targets)

    def build_package(self) -> None:
        self.build("_core")
        (module,) = (self.tree / "build" / "dev" / "bindings").glob("_core*.so")
        shutil.copy(module, self.tree / "pycollective")

    def pass_tests(self, *layers: str) -> None:
        self.build(*(f"test_{layer}" for layer in layers))
        for layer in layers:
            self.run(f"build/dev/tests/cpp/test_{layer}")

    def expect(self, wanted: str, *command: str, **environment: str) -> None:
        printed = self.run(*command, **environment)
        if wanted not in printed:
            raise Failed(f"{' '.join(command)} does not print {wanted!r}, but\n{printed}")


def algorithm(copy: Copy) -> None:
    copy.pass_tests("plan")
    copy.build_package()
    copy.run(*PLAN, "check", "--collective", "allreduce", "--algorithm", "chain", "-n", "1..64")
    copy.expect("+c0<0", *PLAN, "show", "allreduce", "--algorithm", "chain", "-n", "4")
    explain = "import pycollective as pc; print(pc.explain('allreduce', nbytes=4096, size=4))"
    taken = {"PYCOLLECTIVE_TUNE": "allreduce:0-inf:chain"}
    copy.expect("algorithm: chain ", PYTHON, "-c", explain, **taken)
    call = (
        "import numpy as np, pycollective as pc\n"
        "pc.init()\n"
        "assert (pc.allreduce(np.full(1000, 1.0 + pc.rank())) == 6).all()\n"
        "pc.shutdown()\n"
    )
    (copy.tree / "call.py").write_text(call)
    copy.run(PYTHON, "-m", "pycollective", "run", "-n", "3", "call.py", **taken)


def array_library(copy: Copy) -> None:
    for built in (PACKAGES / "pycollective").glob("*.so"):  # no C++ changes
        shutil.copy(built, copy.tree / "pycollective")
    for name, text in PROGRAMS["array_library"].items():
        (copy.tree / name).write_text(text)
    copy.run(PYTHON, "boxes_test.py")


def collective(copy: Copy) -> None:
    copy.pass_tests("plan")
    copy.build_package()
    copy.run(PYTHON, "scripts/stubs")
    copy.run(*PLAN, "check", "--collective", "rscan", "--algorithm", "chain", "-n", "1..64")
    (copy.tree / "rscan_test.py").write_text(PROGRAMS["collective"]["rscan_test.py"])
    for transport in ("tcp", "shm"):
        for ranks in "1234":
            run = (PYTHON, "-m", "pycollective", "run", "-n", ranks, "rscan_test.py")
            copy.run(*run, PYCOLLECTIVE_TRANSPORT=transport)


def dtype(copy: Copy) -> None:
    copy.pass_tests("base", "kernels")
    copy.build("pc_bench")  # its switch over all dtypes must be complete


PROGRAMS = {page.name: page.programs for page in PAGES}
PROOFS = {
    "algorithm": algorithm,
    "array_library": array_library,
    "collective": collective,
    "dtype": dtype,
}


def main(names: list[str]) -> int:
    """Returns 1 if a page does not do what it states."""
    failed = 0
    for page in PAGES:
        if names and page.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="add-") as folder:
            try:
                PROOFS[page.name](Copy(Path(folder), page))
            except (Failed, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  docs/add/{page.name}.md: {error}", flush=True)
            else:
                print(f"ok      docs/add/{page.name}.md", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
