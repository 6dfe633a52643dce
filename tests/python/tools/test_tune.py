"""Profiles are applied or refused, and all output reports it. `pycollective tune` writes them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

import pycollective as pc
from pycollective import _core, testing
from pycollective.tools.tune import command, ranks
from pycollective.tools.tune.command import Found, settings_of, write
from pycollective.tools.tune.decide import Finding, Passes, best_cut, best_value
from pycollective.tools.tune.experiments import Cell, Cut, Experiment, Values, World, experiments
from pycollective.tools.tune.ranks import Measured, passes_for

NBYTES = 40 << 10
SHARED = "combined_at_once=1k"
TCP = "allreduce:0-64k:recursive_doubling"


def profile(path: Path, *settings: tuple[int, str, str]) -> str:
    path.write_text(_core._profile_text(list(settings), "for a test"))
    return str(path)


def explained() -> str:
    return pc.explain("allreduce", nbytes=NBYTES)


def explained_where_every_rank_has_its_own(paths: list[str]) -> str:
    os.environ["PYCOLLECTIVE_PROFILE"] = paths[int(os.environ["RANK"])]
    pc.init(timeout=30)
    text = explained()
    pc.shutdown()
    return text


# ---- what a profile does


def test_a_profile_is_applied_and_explained_on_all_ranks(tmp_path: Path) -> None:
    name = profile(tmp_path / "mine", (2, "combined_at_once", "1k"), (2, "tcp", TCP))
    shared = testing.run(explained, 2, env={"PYCOLLECTIVE_PROFILE": name})
    for text in shared:
        assert "algorithm: shared_memory (in rounds" in text  # a profile does not disable shared memory
        assert f"profile:   {name}: {SHARED}, tcp={TCP}\n" in text
    over_tcp = testing.run(explained, 2, env={"PYCOLLECTIVE_PROFILE": name, "PYCOLLECTIVE_TRANSPORT": "tcp"})
    for text in over_tcp:
        assert "algorithm: recursive_doubling" in text
        assert f"{TCP}:chunk=0, measured here\n" in text or f"{TCP}, measured here\n" in text
    others = testing.run(explained, 3, env={"PYCOLLECTIVE_PROFILE": name})
    assert f"profile:   {name}: nothing but the defaults for 3 ranks\n" in others[0]


def test_results_with_a_profile_are_exact(tmp_path: Path) -> None:
    name = profile(tmp_path / "mine", (2, "least_chunk", "4k"), (2, "most_chunk", "4k"), (2, "ring", "256k"))
    assert testing.run(sums, 2, env={"PYCOLLECTIVE_PROFILE": name}) == [True, True]


def sums() -> bool:
    import numpy as np

    x = np.arange(1 << 18, dtype="float64") + pc.rank()
    return bool((pc.allreduce(x) == 2 * np.arange(1 << 18) + 1).all())


def test_the_profile_of_rank_0_counts_whatever_the_others_have(tmp_path: Path) -> None:
    first = profile(tmp_path / "first", (2, "combined_at_once", "1k"))
    second = profile(tmp_path / "second", (2, "combined_at_once", "512k"))
    missing = str(tmp_path / "missing")
    for paths in ([first, second], [first, missing], [first, "off"]):
        for text in testing.run(explained_where_every_rank_has_its_own, 2, paths, init=False):
            assert f"profile:   {first}: {SHARED}\n" in text
    for text in testing.run(explained_where_every_rank_has_its_own, 2, ["off", first], init=False):
        assert "profile" not in text
        assert "at once" in text


def test_without_a_name_the_users_own_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pycollective").mkdir()
    name = profile(tmp_path / "pycollective" / "profile", (2, "combined_at_once", "1k"))
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert all(name in text for text in testing.run(explained, 2, env=home))
    off = testing.run(explained, 2, env={**home, "PYCOLLECTIVE_PROFILE": "off"})
    assert not any("profile" in text for text in off)


def test_a_world_that_is_only_thought_of_has_the_profile_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = profile(tmp_path / "mine", (2, "tcp", TCP))
    monkeypatch.setenv("PYCOLLECTIVE_PROFILE", name)
    assert "measured here" in pc.explain("allreduce", nbytes=NBYTES, size=2)
    assert "measured here" not in pc.explain("allreduce", nbytes=NBYTES, size=2, hosts=2)


# ---- what is refused


def python(script: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pycollective", "run", "-n", "2", "--", sys.executable, "-c", script]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}
    )


EXPLAIN = "import pycollective as pc; pc.init(); print(pc.explain('allreduce', nbytes=8))"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cores = ", "cores = 9", "it was measured on another machine: cores is '9"),
        ("pycollective-profile = 1", "pycollective-profile = 2", ":3: profiles of format '2'"),
        ("ring = 8m", "rings = 8m", "no limit is called 'rings'"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_in_the_log_and_in_explain(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    path = tmp_path / "mine"
    text = _core._profile_text([(2, "ring", "8m")], "a\nb")
    assert old in text
    path.write_text(text.replace(old, new))
    ended = python(EXPLAIN, {"PYCOLLECTIVE_PROFILE": str(path)})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"profile:   refused: {path}:") == 2
    assert ended.stdout.count(why) == 2
    assert ended.stderr.count("warning") == 1  # rank 0's
    assert f"the profile of this machine is refused: {path}:" in ended.stderr
    assert why in ended.stderr
    with pytest.raises(pc.CollectiveError, match=str(path)):
        _core._read_profile(str(path))


def test_a_profile_that_was_named_and_is_not_there_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(explained, 2, env={"PYCOLLECTIVE_PROFILE": missing})
    assert len(failed.value.errors) == 2
    assert "off" in str(failed.value)
    assert missing in str(failed.value)


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "profile"
    good = _core._profile_text([(2, "ring", "8m")], "")
    write(path, good)
    with pytest.raises(pc.InvalidArgument, match="rings"):
        write(path, good.replace("ring =", "rings ="))
    assert path.read_text() == good
    assert list(path.parent.iterdir()) == [path]
    for wrong in ((2, "rings", "8m"), (1, "ring", "8m"), (2, "least_chunk", "1m")):
        with pytest.raises(pc.InvalidArgument):
            _core._profile_text([wrong], "")


# ---- how the decision is made

SIZES = (1 << 10, 2 << 10, 4 << 10, 8 << 10)
CUT = Cut("x", 4 << 10, SIZES, tuple(Cell("allreduce", size) for size in SIZES), (World("shm"),) * 2)


def passes_of(
    second_is_faster_by: list[float], noise: float = 0.0, count: int = 9, rounds: int = 1
) -> Passes:
    """Makes passes over sizes in their order. The noise goes up and down from pass to pass."""
    return [
        [[[factor * (1 + (noise if i % 2 else -noise)), 1.0] for factor in second_is_faster_by]] * rounds
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("factors", "best"),
    [
        ([0.5, 0.5, 2, 2], "4k"),  # no change
        ([0.5, 2, 2, 2], "2k"),
        ([2, 2, 2, 2], "1k"),
        ([0.5, 0.5, 0.5, 2], "8k"),
        ([0.5, 0.5, 0.5, 0.5], "16k"),
        ([0.5, 1.04, 2, 2], "4k"),  # not enough
    ],
)
def test_a_cut_goes_where_the_second_way_becomes_faster(factors: list[float], best: str) -> None:
    assert best_cut(CUT, passes_of(factors)).best == best


def test_a_default_stays_where_noise_is_larger_than_the_gain_or_rounds_are_few() -> None:
    clear = [0.5, 1.2, 2.0, 2.0]
    assert best_cut(CUT, passes_of(clear, noise=0.02)).is_better
    assert not best_cut(CUT, passes_of(clear, noise=0.3, count=10)).is_better
    quick = [[each[0] for each in passes_of(clear, noise=0.3, count=100)] for _ in range(3)]
    assert best_cut(CUT, quick).is_better  # differences between rounds do not matter if all passes agree
    assert best_cut(CUT, passes_of(clear, count=3, rounds=2)).is_better
    assert not best_cut(CUT, passes_of(clear, count=2, rounds=9)).is_better
    assert not best_cut(CUT, passes_of(clear, count=4, rounds=1)).is_better
    assert math.isinf(best_cut(CUT, passes_of(clear, count=1)).spread)


@pytest.mark.parametrize(("seconds", "passes"), [(0.1, 1), (5, 3), (60, 3), (100, 5), (3600, 9)])
def test_worlds_are_made_anew_often_enough_to_tell(seconds: float, passes: int) -> None:
    assert passes_for(seconds) == passes


@pytest.mark.parametrize(("pass_takes_s", "passes"), [(1.0, [3, 3]), (4.0, [2, 1]), (20.0, [1, 1])])
def test_on_a_slow_machine_each_experiment_has_a_pass_and_then_the_time_decides(
    monkeypatch: pytest.MonkeyPatch, pass_takes_s: float, passes: list[int]
) -> None:
    now = [0.0]

    def conduct(experiment: Experiment, number: int, seconds: float) -> Measured:
        now[0] += pass_takes_s
        return Measured([[]])

    monkeypatch.setattr(ranks, "conduct", conduct)
    monkeypatch.setattr(ranks, "agreed", lambda wanted: wanted)
    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert [len(each.passes) for each in ranks.measure([CUT, CUT], 9.0)] == passes


def test_the_best_value_is_that_of_the_largest_gain() -> None:
    what = Values("a b", ("1k 2k", "4k 8k", "16k 32k"), (Cell("allreduce", 8),) * 2, (World("shm"),) * 3)
    found = best_value(what, [[[[1.0, 0.9, 0.5], [1.0, 0.9, 0.6]]]] * 5)
    assert (found.default, found.best) == ("1k 2k", "16k 32k")
    assert settings_of(Found(4, [found], [])) == [(4, "a", "16k"), (4, "b", "32k")]
    assert best_value(what, [[[[1.0, 0.97, 0.98], [1.0, 0.97, 0.98]]]] * 9).best == "1k 2k"


def moved(name: str, best: str, gain: float = 0.1) -> Finding:
    return Finding(name, "32k", best, gain, 0.01, 9)


@pytest.mark.parametrize(("faster", "kept"), [(1.2, {"ring", "moved_at_once"}), (0.9, {"ring"})])
def test_limits_that_are_no_gain_together_are_given_up_but_for_the_best(
    monkeypatch: pytest.MonkeyPatch, faster: float, kept: set[str]
) -> None:
    asked = []

    def measured(ranks: int, plans: list[Experiment], seconds: float) -> list[Measured]:
        del ranks, seconds
        asked.extend(plans)
        return [Measured([[[[faster, 1.0]] * len(plans[0].cells)]] * 9)]

    monkeypatch.setattr(command, "measured", measured)
    alone = Found(2, [moved("ring", "8m", 0.3), moved("tcp ring", "64k")], [])
    assert command.checked(alone, 1) == alone
    assert asked == []
    found = command.checked(Found(2, [moved("ring", "8m", 0.3), moved("moved_at_once", "16k")], []), 1)
    assert asked[0].worlds[1].tuning == "2:ring=8m|2:moved_at_once=16k"
    assert {name for _, name, _ in settings_of(found)} == kept
    assert "all of these" in command.table_of(found)[-1]


def test_both_cuts_over_tcp_become_one_table() -> None:
    both = Found(2, [moved("tcp ring", "64k"), moved("tcp chunks", "1m")], [])
    assert settings_of(both) == [
        (2, "tcp", "allreduce:0-64k:recursive_doubling;allreduce:64k-1m:ring:chunk=0;allreduce:1m-inf:ring:chunk=512k")
    ]  # fmt: skip
    assert "512k" in _core._profile_text(settings_of(both), "")


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 64])
def test_every_experiment_compares_with_the_default_of_the_core(ranks: int) -> None:
    usual = _core._limits(ranks)
    for what in experiments(ranks):
        assert len(what.cells) > 0
        if isinstance(what, Cut):
            assert what.default in (*what.sizes, 2 * what.sizes[-1])
            if what.name in usual:
                assert what.default == usual[what.name] * (2 if what.inclusive else 1)
        for world in what.worlds:  # the core takes all of it
            settings = [each.partition(":")[2].split("=") for each in world.tuning.split("|") if each]
            _core._profile_text([(ranks, name, value) for name, value in settings], "")


# ---- the command


def tune(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words_of_all = [sys.executable, "-m", "pycollective", "tune", *words]
    return subprocess.run(
        words_of_all,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **(env or {})},
    )


def test_the_command_writes_a_profile_that_init_takes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "profile"
    ended = tune("--time", "0.5", "--ranks", "2", "--output", str(path))
    assert ended.returncode == 0, ended.stderr
    assert f"Written: {path}" in ended.stdout
    for name in (
        "combined_at_once",
        "least_chunk most_chunk",
        "ring",
        "in_place_from",
        "tcp ring",
        "tcp chunks",
    ):
        assert f"    2  {name} " in ended.stdout
    assert "not measured" not in ended.stdout
    text = path.read_text()
    assert text.startswith("# Made by `pycollective tune`")
    assert all(f"{name} = {value}\n" in text for name, value in _core._machine_facts())
    _core._read_profile(str(path))
    for explanation in testing.run(explained, 2, env={"PYCOLLECTIVE_PROFILE": str(path)}):
        assert f"profile:   {path}: " in explanation


def test_too_little_time_is_not_taken_for_good_defaults() -> None:
    def found(rounds: int, best: str = "x") -> Found:
        return Found(2, [Finding("ring", "x", best, 0.1, 0.01, rounds)], [])

    assert command.summary([found(4), found(9)], []).startswith("1 of 2 had not the time for 5 rounds")
    assert command.summary([found(9)], []).startswith("The defaults are good here")
    assert (
        command.summary([found(9, "y")], [(2, "ring", "y")])
        == "1 settings are better than the defaults here."
    )


def test_measuring_on_a_busy_machine_is_reported() -> None:
    assert command.busy_text(0.9, 2) == ""
    busy = command.busy_text(3.0, 2)
    assert "load 3.0, 2 cores" in busy
    assert busy in command.comment_of([], 60, busy).splitlines()
    assert "busy" not in command.comment_of([], 60, "")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    ended = tune("--time", "0.1", "--ranks", "2", "--dry-run", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert "pycollective-profile = 1" in ended.stdout
    assert not list(tmp_path.rglob("profile*"))


@pytest.mark.parametrize("words", [["--time", "0"], ["--time", "nan"], ["--ranks", "1"], ["--ranks", "2,x"]])
def test_wrong_words_are_refused(words: list[str]) -> None:
    assert tune(*words).returncode == 2
