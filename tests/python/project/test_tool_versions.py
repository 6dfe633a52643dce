"""A tool has one version: scripts/setup, scripts/docs and the pre-commit hooks install the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PIN = re.compile(r"[\w.-]+==[\w.]+")


def group(name: str) -> list[str]:
    """Returns that dependency group of pyproject.toml.

    tomllib is new in Python 3.11, so it is not used.
    """
    groups = (ROOT / "pyproject.toml").read_text().partition("[dependency-groups]")[2].partition("\n[")[0]
    found = re.search(rf"^{name} = \[(.*?)\]", groups, re.MULTILINE | re.DOTALL)
    assert found, name
    return re.findall(r'"([^"]+)"', found[1])


def test_each_tool_that_is_installed_has_one_version() -> None:
    for name in ("build", "develop", "test", "docs"):
        requirements = group(name)
        assert requirements, name
        assert all(PIN.fullmatch(each.partition(";")[0]) for each in requirements), name


def test_the_tests_extra_has_its_versions_in_the_group() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extra = re.search(r"^test = \[(.*?)\]", text, re.MULTILINE)
    assert extra
    wanted = {re.split(r"[<>=]", each)[0] for each in re.findall(r'"([^"]+)"', extra[1])}
    assert wanted == {each.partition("==")[0] for each in group("test")}


def test_hooks_have_the_versions_of_the_linters() -> None:
    hooks = re.findall(
        r"^ *additional_dependencies: \[(.+)\]$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE
    )
    installed = {each for hook in hooks for each in hook.split(", ")}
    assert {each.partition("==")[0] for each in installed} == {"ruff", "clang-format", "codespell"}
    assert installed <= set(group("develop"))
