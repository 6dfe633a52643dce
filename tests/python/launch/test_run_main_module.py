"""pc.run where the program is not a script called `__main__`.

It is piped in, spawned, a folder, a zip file or a rank.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(90)

DEADLINE_S = 60.0
no_copies = pytest.mark.skipif(not importlib.util.find_spec("cloudpickle"), reason="cloudpickle is missing")
HEAD = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import pycollective as pc

class Thing:
    def __init__(self, value): self.value = value

def add(thing): return pc.rank() + thing.value
def make(): return Thing(pc.rank())
def start(): return pc.run(add, Thing(5), n=2), [type(each) is Thing for each in pc.run(make, n=2)]
"""
SAID = "([5, 6], [True, True])\n"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(last: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(f"{HEAD}\nif __name__ == '__main__':\n    {last}\n")
        return path

    return write


def executed(*words: str | Path, text: str = "", closed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *words],
        input=text, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip


@no_copies
@pytest.mark.parametrize("words", [(), ("-",)])
def test_a_program_that_is_piped_into_python_travels_as_a_copy(words: tuple[str, ...]) -> None:
    done = executed(*words, text=f"{HEAD}\nprint(pc.run(add, Thing(5), n=2))\n")
    assert done.stdout == "[5, 6]\n", done.stderr


def test_a_piped_program_is_refused_without_cloudpickle() -> None:
    done = executed(text=f"{HEAD}\nsys.modules['cloudpickle'] = None\nprint(pc.run(pc.rank, n=2))\nstart()\n")
    assert done.stdout == "[0, 1]\n"  # the program of a module
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "pycollective.errors.InvalidArgument: add was typed in by hand or piped into Python"
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_process_of_multiprocessing_starts_ranks(script: Callable[[str], Path], method: str) -> None:
    """A spawned process calls the main module `__mp_main__`."""
    done = executed(
        script(
            f"with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('{method}')) as pool:\n"
            f"        print(pool.submit(start).result())"
        )
    )
    assert done.stdout == SAID, done.stderr


def test_a_rank_starts_ranks_of_its_own(script: Callable[[str], Path]) -> None:
    done = executed(script("print(*pc.run(start, n=2), sep='\\n')"))
    assert done.stdout == SAID * 2, done.stderr


@pytest.mark.parametrize("form", ["folder", "app.zip"])
def test_a_folder_and_a_zip_file_start_ranks(
    script: Callable[[str], Path], tmp_path: Path, form: str
) -> None:
    main = script("print(start())")
    folder = tmp_path / "folder"
    folder.mkdir()
    main.rename(folder / "__main__.py")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as app:
        app.write(folder / "__main__.py", "__main__.py")
    done = executed(tmp_path / form)
    assert done.stdout == SAID, done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_obstacle(
    script: Callable[[str], Path], tmp_path: Path, closed: str
) -> None:
    result = tmp_path / "result"
    done = executed(script(f"print('out'); open({str(result)!r}, 'w').write(repr(start()))"), closed=closed)
    assert done.returncode == 0, done.stderr
    assert result.read_text() + "\n" == SAID


def test_a_program_without_a_console_starts_ranks_that_print(script: Callable[[str], Path]) -> None:
    done = executed(
        script("said, sys.stdout = sys.stdout, None; result = pc.run(print, 'x', n=2); print(1, file=said)")
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.parametrize("folder", ["", "lib"])
def test_modules_of_relative_folders_are_found_after_the_program_has_gone_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "of_the_user.py").write_text("def work(): return 7\n")
    monkeypatch.chdir(tmp_path)
    first = f"import os, sys; sys.path.append({folder!r}); import of_the_user, pycollective as pc"
    done = executed("-c", f"{first}; os.chdir('/'); print(pc.run(of_the_user.work, n=2))")
    assert done.stdout == "[7, 7]\n", done.stderr


def test_ranks_have_the_options_of_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, warnings, pycollective as pc\n"
        "def said(): warnings.warn('x'); return sys.flags.optimize, sys.flags.utf8_mode, sys._xoptions.get('mine')\n"
        "if __name__ == '__main__': print(pc.run(said, n=2))\n"
    )
    done = executed("-O", "-W", "ignore", "-X", "utf8", "-X", "mine=7", script)
    assert (done.stdout, done.stderr) == ("[(1, 1, '7'), (1, 1, '7')]\n", "")


def test_a_program_that_a_profiler_runs_raises_that_the_main_module_is_another(
    script: Callable[[str], Path],
) -> None:
    done = executed("-m", "cProfile", script("sys.modules['cloudpickle'] = None; print(start())"))
    last = done.stderr.splitlines()[-1]
    assert "InvalidArgument: add is not in the main module: that is " in last
    assert "cProfile.py, which runs the program, as" in last
    done = executed(script("sys.modules['cloudpickle'] = None; pc.run(lambda: 1, n=1)"))
    assert "<lambda>" in done.stderr.splitlines()[-1]
    assert "not in the main module" not in done.stderr
