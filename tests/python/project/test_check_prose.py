"""What scripts/check_prose refuses: pronouns of persons, retired words, lines that are too long."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_prose"
RETIRED = "ver" + "dict"  # in two parts, since this file is checked as well


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("check_prose", str(SCRIPT))
    module = module_from_spec(spec_from_loader("check_prose", loader))
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # beside the scripts
    loader.exec_module(module)
    return module


def lines(checker: ModuleType, name: str, text: str) -> list[int]:
    return [line for line, _ in checker.check(checker.ROOT / name, text)]


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("a.h", "int a;  // a rank that waits\n", []),
        ("a.h", "int a;\nint b;  // the rank wh{}o waits\n", [2]),
        ("a.h", 'auto a = R"(one\nfor wh{}oever waits)";\n', [2]),
        ("a.h", "int wh{}o = 1'000'000;\n", []),  # a name, which the compiler reads
        ("a.h", "// it's 'fine'\n// but this: no{}body\n", [2]),
        ("a.py", '"""First.\n\nNo{}body waits.\n"""\n', [3]),
        ("a.py", "x = 1  # of hi{}m\n", [1]),
        ("a.py", '"""As in He et al., 2016."""\n', []),
        ("a.py", f"# {'x ' * 50}\n", [1]),
        ("a.py", f'"""Prints:\n\n    >>> print(1)\n    {"x" * 100}\n"""\n', []),
        ("a.cc", f"// {'x' * 97}\n", []),
        ("a.cc", f"// {'x' * 98}\n", [1]),
        ("a.md", f"{'x' * 121}\n", [1]),
        ("a.md", "Every{}body can read it.\n", [1]),
        ("a.cmake", "# no{}body\n", [1]),
        ("a.cmake", "set(x y)  # for no{}body\n", [1]),
        ("scripts/a", '#!/bin/bash\n\necho "no{}body"\n', [3]),
        ("a.py", 'x = f"no{}body: {1 + 1}"\n', [1]),
        ("a.cc", f"struct Late{RETIRED.title()} {{}};\n", [1]),
        ("a.py", f"late_{RETIRED}s = 1\n", [1]),
    ],
)
def test_prose_is_checked_where_people_read_it(
    checker: ModuleType, name: str, text: str, wrong: list[int]
) -> None:
    assert lines(checker, name, text.replace("{}", "", 1) if "{}" in text else text) == wrong


def test_a_deprecated_public_name_may_stay(checker: ModuleType) -> None:
    name, word = next(iter(checker.ALLOWED.items()))
    assert lines(checker, name, f"def {word}() -> None: ...\n") == []
    assert lines(checker, "a.py", f"def {word}() -> None: ...\n") == [1]
