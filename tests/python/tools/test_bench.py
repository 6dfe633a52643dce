"""`pycollective bench`: what it accepts, and that its columns are right."""

from __future__ import annotations

import sys

import pytest

from pycollective import bench, cli


def test_the_benchmark_runs_as_a_module_so_that_ours_do_not_shadow_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = []
    monkeypatch.setattr(
        "pycollective.launching.run.run", lambda options: commands.append(options.command) or 0
    )
    assert cli.main(["bench", "--iters", "3"]) == 0
    assert commands[0][:3] == [sys.executable, "-m", "pycollective.bench"]


def test_the_benchmark_refuses_a_negative_number_of_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--iters", "-5"])
    assert "must be at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["-8", "8,-1K", "8,", "x"])
def test_what_is_no_size_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", f"--sizes={words}"])
    assert "is not a size" in capsys.readouterr().err


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize(("asked", "count"), [(0, 0), (2, 1), (8, 2), (10, 3)])
def test_a_row_has_the_number_of_bytes_moved(asked: int, count: int) -> None:
    moved = []
    operation = bench.Operation(lambda x: moved.append(x.nbytes), lambda *_: None, lambda n: 1.0, "")
    row = bench.measure(operation, asked, "float32", 3)
    assert (row.nbytes, row.count) == (4 * count, count)
    assert set(moved) == {row.nbytes}
