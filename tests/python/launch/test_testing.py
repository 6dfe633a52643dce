"""pycollective.testing.run, which makes the worlds of all other Python tests."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

pytestmark = pytest.mark.timeout(60)

# The ranks first have 2 s to start and to end, and then more on a machine where this is too short.
LATE_S = (2, 8, 20)


def total(scale: float) -> float:
    x = np.full(5, scale * (pc.rank() + 1))
    pc.allreduce(x)
    return float(x[4])


def place() -> tuple[int, int]:
    return pc.rank(), pc.size()


def not_initialized() -> bool:
    return pc.is_initialized()


def variable() -> str | None:
    return os.environ.get("TEST_VARIABLE")


def fails_on_one() -> int:
    if not pc.is_initialized():
        raise LookupError(str(pc.rank()))
    if pc.rank() == 1:
        pc.recv(np.zeros(1), 0)  # rank 0 has finished init() and does not need this rank any more
        raise LookupError("only here")
    pc.send(np.zeros(1), 1)
    return 7


def killed_on_one() -> None:
    if pc.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def hangs_on_one() -> int:
    if pc.rank() == 1:
        print(f"child {subprocess.Popen(['sleep', '1000']).pid}", flush=True)
        threading.Event().wait()
    return os.getpid()


def unpicklable() -> object:
    return lambda: None


def prints() -> None:
    print(f"hello from {pc.rank()}")


def exits() -> None:
    sys.exit("enough")


def leaves_a_thread() -> str:
    threading.Thread(target=threading.Event().wait).start()
    return "done"


def test_results_come_in_rank_order() -> None:
    assert testing.run(place, 3) == [(0, 3), (1, 3), (2, 3)]


def test_arguments_reach_every_rank() -> None:
    assert testing.run(total, 4, 0.5) == [5.0] * 4


def test_init_can_be_left_to_the_function() -> None:
    assert testing.run(not_initialized, 2, init=False) == [False, False]


def test_extra_variables_reach_the_ranks() -> None:
    assert testing.run(variable, 2, init=False, env={"TEST_VARIABLE": "x"}) == ["x", "x"]


def test_an_exception_comes_back_with_its_rank_and_traceback() -> None:
    with pytest.raises(testing.WorldFailed) as info:
        testing.run(fails_on_one, 2, init=False, env={})
    assert info.value.errors.keys() == {0, 1}  # rank() without init raises on both
    with pytest.raises(testing.WorldFailed) as info:
        testing.run(fails_on_one, 2)
    error = info.value.errors[1]
    assert isinstance(error.exception, LookupError)
    assert error.summary == "LookupError: 'only here'" or error.summary == "LookupError: only here"
    assert 'raise LookupError("only here")' in error.details
    assert info.value.results[0] == 7
    assert "rank 1: LookupError" in str(info.value)


def test_a_killed_rank_is_named_with_its_signal() -> None:
    with pytest.raises(testing.WorldFailed) as info:
        testing.run(killed_on_one, 2)
    assert info.value.errors[1].summary == "killed by SIGKILL"


def test_a_late_rank_shows_its_stacks_and_leaves_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    for late_s in LATE_S:
        with pytest.raises(testing.WorldFailed) as info:
            testing.run(hangs_on_one, 2, timeout_s=late_s)
        printed = capfd.readouterr().out
        late = info.value.errors[1]
        if 0 in info.value.results and "[1] child " in printed and "hangs_on_one" in late.details:
            break
    assert late.summary == f"still running after {late_s} s"
    assert "hangs_on_one" in late.details
    grandchild = int(printed.split("[1] child ")[1].split()[0])
    assert not alive(grandchild)
    assert not alive(info.value.results[0])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_result_that_cannot_travel_is_an_error() -> None:
    with pytest.raises(testing.WorldFailed, match="the result cannot be pickled"):
        testing.run(unpicklable, 1)


def test_what_ranks_print_comes_out_with_their_rank(capsys: pytest.CaptureFixture[str]) -> None:
    testing.run(prints, 2)
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] hello from 0", "[1] hello from 1"]


def test_exit_is_a_failure() -> None:
    with pytest.raises(testing.WorldFailed, match="SystemExit: enough"):
        testing.run(exits, 1)


def test_a_thread_left_behind_does_not_hold_up_the_world() -> None:
    assert testing.run(leaves_a_thread, 2) == ["done", "done"]


def test_a_function_that_cannot_be_imported_is_refused() -> None:
    with pytest.raises(pc.InvalidArgument, match="top level"):
        testing.run(lambda: None, 2)


def wrapped(function: Callable[[], object]) -> Callable[[], object]:
    @functools.wraps(function)
    def wrapper() -> object:
        return "wrapped", function()

    return wrapper


wrapped_place = wrapped(place)  # its __name__ is `place`


class Methods:
    def of_an_instance(self) -> None: ...

    @staticmethod
    def place() -> tuple[int, int]:
        return place()


@pytest.mark.parametrize("function", [wrapped_place, Methods().of_an_instance])
def test_a_function_with_the_name_of_another_is_refused(function: Callable[[], object]) -> None:
    with pytest.raises(pc.InvalidArgument, match="is <function"):
        testing.run(function, 1)


def test_a_static_method_is_found() -> None:
    assert testing.run(Methods.place, 1) == [(0, 1)]


@pytest.mark.parametrize("n", [0, -1])
def test_a_world_without_ranks_is_refused(n: int) -> None:
    with pytest.raises(pc.InvalidArgument, match=f"n={n}"):
        testing.run(place, n)


@pytest.mark.parametrize("name", ["script.py", "script", "script.v2"])
def test_a_function_of_the_main_script_is_found(tmp_path: Path, name: str) -> None:
    script = tmp_path / name
    script.write_text(
        "import pycollective as pc\nfrom pycollective import testing\n"
        "def own_rank(): return pc.rank()\n"
        "if __name__ == '__main__': print(testing.run(own_rank, 2))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_classes_of_the_main_script_come_back(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport pycollective as pc\nfrom pycollective import testing\n"
        "class Mine:\n    def __init__(self): self.rank = pc.rank()\n"
        "class Boom(Exception): pass\n"
        "def make(): return Mine()\n"
        "def fail(): raise Boom('x')\n"
        "if __name__ == '__main__':\n"
        "    found = testing.run(make, 2)\n"
        "    assert [(type(each), each.rank) for each in found] == [(Mine, 0), (Mine, 1)]\n"
        "    try: testing.run(fail, 2)\n"
        "    except testing.WorldFailed as error:\n"
        "        raised = [type(each.exception) for each in error.errors.values()]\n"
        "        print(Boom in raised)  # a rank that was slower may have been ended before it raised\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert done.stdout == "True\n", done.stderr


class Unreadable:
    def __reduce__(self) -> tuple[object, ...]:
        return refuse, (os.getpid(),)


def refuse(pid: int) -> None:
    if pid != os.getpid():
        raise ImportError("not here")


class UnreadableError(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return refuse_error, (os.getpid(),)


def refuse_error(pid: int) -> Exception:
    refuse(pid)
    return UnreadableError()


def unreadable_on_0() -> object:
    if os.environ["RANK"] == "0":
        return Unreadable()
    print(f"pid {os.getpid()}", flush=True)
    threading.Event().wait()
    return None


def raises_unreadable() -> None:
    raise UnreadableError("shown anyway")


def test_a_result_that_cannot_be_read_is_an_error_and_leaves_no_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for late_s in LATE_S:
        with pytest.raises(testing.WorldFailed) as info:
            testing.run(unreadable_on_0, 2, timeout_s=late_s, init=False)
        printed = capfd.readouterr().out
        if "unpickled" in info.value.errors[0].summary and "[1] pid " in printed:
            break
    assert "its result cannot be unpickled here: ImportError('not here')" in info.value.errors[0].summary
    assert info.value.errors[1].summary == f"still running after {late_s} s"
    assert not alive(int(printed.split("[1] pid ")[1].split()[0]))


def test_an_exception_that_cannot_be_read_is_reported_all_the_same() -> None:
    with pytest.raises(testing.WorldFailed) as info:
        testing.run(raises_unreadable, 1)
    error = info.value.errors[0]
    assert error.summary.endswith("UnreadableError: shown anyway")
    assert error.exception is None


def test_no_descriptor_is_left_open() -> None:
    testing.run(prints, 2)
    before = sorted(os.listdir("/proc/self/fd"))
    testing.run(prints, 2)
    assert sorted(os.listdir("/proc/self/fd")) == before


def fails_everywhere() -> None:
    raise ValueError("no such data set")


def test_an_error_of_all_ranks_is_reported_once() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(fails_everywhere, 3, init=False)
    assert str(caught.value).startswith("3 of 3 ranks failed\n-- ranks 0-2: ValueError: no such data set\n")
    assert str(caught.value).count("Traceback") == 1
    assert sorted(caught.value.errors) == [0, 1, 2]
