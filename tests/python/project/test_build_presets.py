"""CMakePresets.json, scripts and wheels name the existing layers of the C++ tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = (ROOT / "tests/cpp/CMakeLists.txt").read_text()
LAYERS = re.search(r"^set\(layers ([^)]*)\)", TESTS, re.MULTILINE)[1].split()
PRESETS = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset["name"])
def test_a_preset_builds_tests_of_layers_that_there_are(preset: dict) -> None:
    tested = preset.get("cacheVariables", {}).get("PYCOLLECTIVE_TESTED", "")
    assert set(filter(None, tested.split(";"))) <= {*LAYERS, "device_kernels", "gpu", "simulation"}


def test_the_tests_on_another_processor_name_layers_that_there_are() -> None:
    text = (ROOT / "tests/wheels/test_aarch64.py").read_text()
    named = re.search(r"^LAYERS = \(([^)]*)\)", text, re.MULTILINE)[1]
    assert set(re.findall(r'"(\w+)"', named)) <= {*LAYERS, "device_kernels", "gpu", "simulation"}
