"""The position of the main thread is found without a wait for the GIL.

No search outlives the interpreter.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sampled

ASKING = """
import ctypes, os, threading, time
from pycollective import _core

found = []
readable, writable = os.pipe()

def ask_until(pattern):
    import re
    while not re.fullmatch(pattern, text := _core._program_position(20.0)):
        pass
    found.append(text)
    os.write(writable, b".")

def stand(pattern):
    thread = threading.Thread(target=ask_until, args=(pattern,))
    thread.start()
    {stand}  # here
    thread.join()

stand({pattern!r})
"""


def run(script: Path, source: str) -> None:
    script.write_text(source)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "stand", ["while not found: pass", "while not found: time.sleep(0.01)", "os.read(readable, 1)"]
)
def test_a_main_thread_that_lends_the_gil_is_found(stand: str, tmp_path: Path) -> None:
    line = 1 + next(n for n, text in enumerate(ASKING.splitlines()) if text.endswith("# here"))
    pattern = re.escape(f"{tmp_path.name}/train.py:{line} in stand")
    run(tmp_path / "train.py", ASKING.format(stand=stand, pattern=pattern))


def test_a_main_thread_in_c_code_that_keeps_the_gil_is_reported_in_time(tmp_path: Path) -> None:
    stand = "while not found: ctypes.PyDLL(None).usleep(400_000)"
    run(tmp_path / "train.py", ASKING.format(stand=stand, pattern="inside C code that keeps the GIL.*"))


def test_frames_of_the_package_are_passed_over(tmp_path: Path) -> None:
    source = """
import os, threading
import pycollective as pc
from pycollective import _core
inside = compile("def wait(): os.read(readable, 1)", os.path.join(pc.__path__[0], "inside.py"), "exec")
readable, writable = os.pipe()
exec(inside)
def ask():
    while not _core._program_position(20.0).endswith("/train.py:12 in <module>"): pass
    os.write(writable, b".")
threading.Thread(target=ask).start()
wait()
"""
    run(tmp_path / "train.py", source)


# All threads search while the interpreter ends. Exit functions run in reverse: `late` when all
# searches must be over.
ENDING = """
import atexit, threading
def ask(timeout, times):
    for _ in range(times): _core._program_position(timeout)
def late():
    ask(0, 300)
    assert _core._program_position(0.05) is None
atexit.register(late)
from pycollective import _core
atexit.register(ask, 0, 300)
for timeout in {timeouts}:
    threading.Thread(target=ask, args=(timeout, 1 << 60), daemon=True).start()
ask(0, 300)
"""


@pytest.mark.timeout(300)  # many interpreters
@pytest.mark.parametrize("timeouts", [(), (0, 0), (0, 0.0001, 20)])
def test_no_search_outlives_the_interpreter(timeouts: tuple[float, ...], tmp_path: Path) -> None:
    for _ in range(17 if sampled.FULL else 5):
        run(tmp_path / "train.py", ENDING.format(timeouts=timeouts))


def test_a_forked_child_searches_for_itself(tmp_path: Path) -> None:
    source = """
import os, threading, warnings
from pycollective import _core
warnings.simplefilter("ignore")  # fork() beside threads: what this is about
def ask():
    for _ in range(50): _core._program_position(0)
for _ in range(20):
    ask()
    child = os.fork()
    if child == 0:
        assert _core._program_position(20.0).endswith("train.py:11 in <module>")
        ask()
        raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    run(tmp_path / "train.py", source)
