"""A variable that nothing reads is told once, with the name that may have been meant."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import pycollective as pc
from pycollective import _core, environment_names, testing


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_names, "_warned", False)


def begin_twice() -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            pc.init(timeout=30)
            pc.shutdown()
    return [f"{each.filename.rpartition('/')[2]}: {each.message}" for each in told]


def test_one_warning_names_all_of_them_and_what_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TIMEOUT", "5")
    monkeypatch.setenv("PYCOLLECTIVE_QQQ", "1")
    monkeypatch.setenv("PYCOLLECTIVE_EMPTY", "")
    monkeypatch.setenv("PYCOLLECTIVE_LOG", "warn")
    (told,) = begin_twice()
    assert told == (
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


def test_what_the_librarys_own_scripts_set_is_known() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    names: set[str] = set()
    for script in scripts.iterdir():
        if script.is_file():
            for line in re.findall(r"^\s*export (.+)$", script.read_text(), re.MULTILINE):
                names |= set(re.findall(r"\b(PYCOLLECTIVE_\w+)(?:=|\b)", line))
    assert len(names) > 3
    read = environment_names.known(_core.environment_markdown())
    assert environment_names.unknown(dict.fromkeys(names, "x"), read) == []
