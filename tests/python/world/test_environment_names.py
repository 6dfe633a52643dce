"""A variable that nothing reads is reported once, with the name that was probably meant."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import pytest

import pycollective as pc
from pycollective import _core, testing
from pycollective.runtime import environment_names


@pytest.fixture(autouse=True)
def no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes all variables of ours, and the record of warnings."""
    monkeypatch.setattr(environment_names, "_warned", False)
    for name in environment_names.unknown(os.environ, ()):
        monkeypatch.delenv(name)


def begin_twice() -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            pc.init(timeout=30)
            pc.shutdown()
    found = [f"{each.filename.rpartition('/')[2]}: {each.message}" for each in caught]
    return [each for each in found if "nothing reads" in each]


def test_one_warning_names_all_of_them_and_what_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TIMEOUT", "5")
    monkeypatch.setenv("PYCOLLECTIVE_QQQ", "1")
    monkeypatch.setenv("PYCOLLECTIVE_EMPTY", "")
    monkeypatch.setenv("PYCOLLECTIVE_LOG", "warn")
    (warning,) = begin_twice()
    assert warning == (
        "test_environment_names.py: pycollective: nothing reads the environment variables PYCOLLECTIVE_QQQ, "
        "PYCOLLECTIVE_TIMEOUT (did you mean PYCOLLECTIVE_TIMEOUT_S?). `pycollective env` lists those that are read"
    )


def test_rank_0_alone_says_it() -> None:
    first, *others = testing.run(begin_twice, 3, init=False, env={"PYCOLLECTIVE_TRANPORT": "tcp"})
    assert len(first) == 1
    assert "PYCOLLECTIVE_TRANPORT (did you mean PYCOLLECTIVE_TRANSPORT?)" in first[0]
    assert others == [[], []]


def test_what_is_known_is_no_reason_for_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_RESTART_COUNT", "0")
    monkeypatch.setenv("PYCOLLECTIVE_TIMEOUT_S", "30")
    assert begin_twice() == []


def begin_with_errors_for_warnings() -> bool:
    warnings.simplefilter("error", UserWarning)
    try:
        pc.init(timeout=30)
    except UserWarning:
        assert pc.rank() == 0
        return True
    assert pc.rank() > 0
    return False


def test_a_warning_that_is_an_error_keeps_no_rank_waiting() -> None:
    env = {"PYCOLLECTIVE_TRANPORT": "tcp"}
    assert testing.run(begin_with_errors_for_warnings, 2, init=False, env=env) == [True, False]


def test_what_the_tests_in_cpp_read_is_known() -> None:
    text = (Path(__file__).parents[2] / "cpp" / "main.cc").read_text()
    names = re.findall(r'getenv\("(PYCOLLECTIVE_\w+)"\)', text)
    assert len(names) >= 2
    assert environment_names.unknown(dict.fromkeys(names, "x"), ()) == []


def test_what_the_librarys_own_scripts_set_is_known() -> None:
    scripts = Path(__file__).parents[3] / "scripts"
    names: set[str] = set()
    for script in scripts.iterdir():
        if script.is_file():
            for line in re.findall(r"^\s*export (.+)$", script.read_text(), re.MULTILINE):
                names |= set(re.findall(r"\b(PYCOLLECTIVE_\w+)(?:=|\b)", line))
    assert len(names) > 3
    read = environment_names.known(_core.environment_markdown())
    assert environment_names.unknown(dict.fromkeys(names, "x"), read) == []


@pytest.mark.parametrize("name", ["PYCOLLECTIVE_CHECK", "PYCOLLECTIVE_GPU", "PYCOLLECTIVE_STREAM_CHECK"])
def test_a_value_that_is_not_allowed_is_an_error_of_init(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "perhaps")
    with pytest.raises(pc.InvalidArgument, match=name):
        pc.init()
