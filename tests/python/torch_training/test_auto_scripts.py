"""`python -m pycollective.torch.auto`: unmodified scripts, as users launch them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import launchers
import numpy as np
import programs
import pytest
import sampled

import pycollective as pc

if launchers.torch() is not None:
    pytest.skip(str(launchers.torch()), allow_module_level=True)

import torch

pytestmark = pytest.mark.timeout(240)  # the first test of each kind waits for all launches


SCRIPTS = Path(__file__).with_name("auto_scripts")

SAYS_WHAT_IT_IS = """
import json, sys
import pycollective as pc
assert pc.init() is pc.world()
print(json.dumps([__name__, __file__, sys.argv[1:], sys.path[0], sys.modules["__main__"].__dict__ is globals()]))
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("module", [False, True])
def test_a_program_finds_what_it_finds_under_python(
    module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pycollective.torch.auto import script

    path = tmp_path / "says_what_it_is.py"
    path.write_text(SAYS_WHAT_IT_IS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path) if module else "/elsewhere", *sys.path])
    monkeypatch.setattr(sys, "argv", [])
    program = ["-m", path.stem] if module else [path.name]
    try:
        script.main([*program, "0", "--reduction", "-m"])
        assert not pc.is_initialized()
        with pytest.raises(SystemExit, match="3"):
            script.main([*program, "3"])
    finally:
        pc.shutdown()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0] == ["__main__", str(path), ["0", "--reduction", "-m"], str(tmp_path), True]
    assert [each[2] for each in said] == [["0", "--reduction", "-m"], ["3"]]


NUMBER = re.compile(r"\d+\.\d+")
DIGITS, CURVE = SCRIPTS / "digits.py", SCRIPTS / "curve.py"
OURS = next(each for each in launchers.LAUNCHERS if each.name == "pycollective")
MPIRUN = next(
    (
        each
        for each in launchers.LAUNCHERS
        if "mpi" in each.name and each.hosts == 1 and each.missing() is None
    ),
    OURS,
)


def launched(ranks: int, script: Path, folder: Path, launcher: launchers.Launcher = OURS) -> str:
    """Starts it as users do; in the daily run only on forked ranks."""
    if not sampled.FULL:
        return programs.run(ranks, script, str(folder), auto=True)[0]
    (command, *_) = launcher.start(ranks, ["-m", "pycollective.torch.auto", str(script), str(folder)])
    unsaid = "ignore:pycollective.torch.auto"  # the warning about sizes of parts
    env = {**os.environ, **command.env, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": unsaid}
    done = subprocess.run(command.words, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("scripts")
    folders = {name: root / name for name in ("d0", "d1", "d2", "d4", "c0", "c2")}
    for folder in folders.values():
        folder.mkdir()
    return {
        "folder": str(root),
        "digits": programs.run(1, DIGITS, str(folders["d0"]))[0],
        "digits 1": launched(1, DIGITS, folders["d1"]),
        "digits 2": launched(2, DIGITS, folders["d2"]),
        "digits 4": launched(4, DIGITS, folders["d4"]),
        "curve": programs.run(1, CURVE, str(folders["c0"]))[0],
        "curve 2": launched(2, CURVE, folders["c2"], MPIRUN),
    }


def test_with_one_rank_a_script_prints_what_it_prints_alone(printed: dict[str, str]) -> None:
    assert printed["digits 1"] == printed["digits"]
    models = [Path(printed["folder"], folder, "model.pt").read_bytes() for folder in ("d0", "d1")]
    assert models[0] == models[1]


@pytest.mark.parametrize("run", ["digits 2", "digits 4", "curve 2"])
def test_an_unmodified_script_has_the_same_loss_curve_on_any_number_of_ranks(
    run: str, printed: dict[str, str]
) -> None:
    alone, together = (NUMBER.findall(printed[name]) for name in (run.split()[0], run))
    assert len(alone) > 20
    np.testing.assert_allclose(np.array(together, float), np.array(alone, float), rtol=1e-6)


def test_rank_0_saves_the_model_that_training_alone_gives(printed: dict[str, str]) -> None:
    models = [torch.load(Path(printed["folder"], folder, "model.pt")) for folder in ("d0", "d2", "d4")]
    for model in models[1:]:
        for name, values in models[0].items():
            torch.testing.assert_close(model[name], values, rtol=1e-8, atol=1e-10)


def test_an_exception_on_one_rank_ends_all(tmp_path: Path) -> None:
    command = OURS.start(2, ["-m", "pycollective.torch.auto", str(SCRIPTS / "one_fails.py")])[0]
    # and not only after 600 s
    done = subprocess.run(command.words, capture_output=True, text=True, timeout=110)
    assert done.returncode == 1
    assert "RuntimeError: no more" in done.stderr
