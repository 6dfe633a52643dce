"""A variable that nothing reads is told once, with the name that may have been meant."""

from __future__ import annotations

import warnings

import pytest

import pycollective as pc
from pycollective import environment_names, testing


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
