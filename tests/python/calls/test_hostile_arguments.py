"""Arguments with hostile Python code: nothing crashes, and nothing else is written.

Ctrl-C is never lost. What used to crash runs in a process of its own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import Dlpack, OldDlpack

import pycollective as pc
from pycollective import testing

SUPPORT = str(Path(__file__).resolve().parents[2] / "support")


def survives(script: str) -> str:
    """Returns what `script` prints in a fresh interpreter that overwrites freed memory."""
    head = f"import sys; sys.path.insert(0, {SUPPORT!r})\nfrom arrays import *\n"
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", f"{head}import pycollective as pc\n{script}"],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_an_exporter_is_asked_not_to_copy_what_is_written(world_of_one: pc.Group) -> None:
    class Recording(Dlpack):
        def __dlpack__(self, **how: Any) -> Any:
            asked.append(how.get("copy"))
            return super().__dlpack__(**how)

    asked: list[Any] = []
    pc.allreduce(Recording(np.ones(3)))
    pc.broadcast(Recording(np.ones(3)))  # the root is only read
    assert asked == [False, None]


CLEAR_ERROR = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p)
AT_DELETER = 56  # bytes from the start of a DLManagedTensor


class Clearing(OldDlpack):
    """Its capsule's destructor, or its tensor's deleter, clears the error, as those of JAX do."""

    def __init__(self, x: Any, where: str) -> None:
        super().__init__(x)
        self.where = where

    def __dlpack__(self) -> Any:
        capsule = super().__dlpack__()
        api = ctypes.pythonapi
        if self.where == "destructor":
            api.PyCapsule_SetDestructor(ctypes.py_object(capsule), CLEAR_ERROR)
        else:
            api.PyCapsule_GetPointer.restype = ctypes.c_void_p
            tensor = api.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor")
            ctypes.c_void_p.from_address(tensor + AT_DELETER).value = CLEAR_ERROR.value
        return capsule


@pytest.mark.parametrize("where", ["destructor", "deleter"])
def test_an_error_outlives_an_exporter_that_clears_errors(world_of_one: pc.Group, where: str) -> None:
    with pytest.raises(pc.InvalidArgument, match="speaks a DLPack older than 1.0"):
        pc.allreduce(Clearing(np.ones(3), where))
    pc.allreduce(np.ones(3))


class Interrupting(Dlpack):
    """Ctrl-C is pressed while `what` is requested from it."""

    def __init__(self, what: str) -> None:
        super().__init__(np.ones(3))
        self.what = what

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "what"):
            raise KeyboardInterrupt
        return object.__getattribute__(self, name)

    def __index__(self) -> int:
        raise KeyboardInterrupt

    __float__ = __index__


@pytest.mark.parametrize("what", ["__dlpack_device__", "__dlpack__"])
def test_ctrl_c_while_an_array_is_asked_stays_ctrl_c(world_of_one: pc.Group, what: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        pc.allreduce(Interrupting(what))


def test_ctrl_c_and_other_errors_of_a_number_stay_what_they_are(world_of_one: pc.Group) -> None:
    class Failing:
        def __index__(self) -> int:
            raise RuntimeError("no number today")

    with pytest.raises(KeyboardInterrupt):
        pc.broadcast(np.ones(3), root=Interrupting(""))
    with pytest.raises(KeyboardInterrupt):
        pc.broadcast(np.ones(3), timeout=Interrupting(""))
    with pytest.raises(RuntimeError, match="no number today"):
        pc.broadcast(np.ones(3), root=Failing())


def test_ctrl_c_in_a_buffer_stays_ctrl_c(world_of_one: pc.Group) -> None:
    class Buffer(bytearray):
        def __buffer__(self, flags: int) -> memoryview:
            raise KeyboardInterrupt

    if sys.version_info < (3, 12):
        pytest.skip("classes in Python have __buffer__ since 3.12")
    with pytest.raises(KeyboardInterrupt):
        pc.allreduce(Buffer(8))


def test_an_error_without_a_printable_text_is_still_an_error() -> None:
    assert "InvalidArgument InvalidArgument" in survives("""
class Unprintable(ValueError):
    def __str__(self): raise RuntimeError("not even that")
class Failing(Dlpack):
    def __dlpack_device__(self): raise self.x
pc.init()
for error in ValueError("\\udcff"), Unprintable():
    try:
        pc.allreduce(Failing(error))
    except pc.InvalidArgument as refused:
        assert "does not say where it lies" in str(refused)
        print(type(refused).__name__, end=" ")
""")


def test_an_exception_in_a_dtypes_name_does_not_end_the_process() -> None:
    assert survives("""
import numpy._core._dtype as naming
def interrupted(dtype): raise KeyboardInterrupt
naming._name_get = interrupted
pc.init()
for x in np.ones(3, object), np.ones(3, ml_dtypes.bfloat16):
    try:
        pc.allreduce(x)
    except KeyboardInterrupt:
        print("raised", end=" ")
""").split() == ["raised", "raised"]


def test_bfloat16_arrays_are_recognized_without_asking_python_again(world_of_one: pc.Group) -> None:
    x = np.ones(3, ml_dtypes.bfloat16)
    pc.allreduce(x)
    calls: list[Any] = []
    sys.setprofile(lambda _, event, function: calls.append(function) if event == "call" else None)
    pc.allreduce(x)
    sys.setprofile(None)
    assert calls == []


def test_an_array_that_shuts_the_world_down_while_it_is_asked_gets_not_initialized() -> None:
    assert (
        survives("""
class Closing(Dlpack):
    def __dlpack__(self, **how):
        pc.shutdown()
        return super().__dlpack__(**how)
for call in pc.allreduce, pc.broadcast, pc.reduce, lambda x: pc.send(x, 0), lambda x: pc.recv(x, 0):
    pc.init()
    try:
        call(Closing(np.ones(3)))
    except pc.NotInitialized:
        print("refused", end=" ")
""").split()
        == ["refused"] * 5
    )


def shut_down_under_a_call() -> Any:
    if pc.rank() == 1:
        try:
            pc.recv(np.zeros(1), 0)
        except pc.CollectiveError as error:
            return type(error).__name__
    kinds = []

    def wait() -> None:
        entered.set()
        try:
            pc.recv(np.zeros(1), 1, timeout=2)
        except pc.CollectiveError as error:
            kinds.append(type(error).__name__)

    entered = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    try:
        pc.shutdown(timeout=0.3)
    except pc.CollectiveError:
        pass
    thread.join()
    return kinds


@pytest.mark.daily(0)
def test_a_shutdown_under_a_waiting_call_of_another_thread_ends_it_with_an_error() -> None:
    for _ in range(3):
        kinds, other = testing.run(shut_down_under_a_call, 2, env={"PYTHONMALLOC": "debug"})
        assert len(kinds) == 1
        assert other != "nothing"
