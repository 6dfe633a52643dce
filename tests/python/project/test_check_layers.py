"""What scripts/check_layers refuses: imports that point up, unknown folders and cycles.

It also refuses rows for what does not exist.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_layers"
TABLE = ("_core", "low", "high high/inside", "__init__", "cli")


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("check_layers", str(SCRIPT))
    module = module_from_spec(spec_from_loader("check_layers", loader))
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # beside the scripts
    loader.exec_module(module)
    monkeypatch.setattr(module, "PYTHON", TABLE)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package that passes."""
    write(tmp_path, "_core.pyi", "")
    write(tmp_path, "low/__init__.py", "")
    write(tmp_path, "low/one.py", "import os\nfrom pycollective import _core\n")
    write(tmp_path, "low/two.py", "import numpy\nfrom pycollective.low import one\n")
    write(tmp_path, "high/__init__.py", "def f():\n    from pycollective.high import one\n")
    write(tmp_path, "high/one.py", "from pycollective import high\nfrom pycollective.low.two import x\n")
    write(tmp_path, "high/inside/__init__.py", "from pycollective.low import two\n")
    write(tmp_path, "__init__.py", "def f():\n    from pycollective import cli\n")
    write(tmp_path, "cli.py", "from pycollective import allreduce\nfrom pycollective.high.inside import x\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / "pycollective" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(checker: ModuleType, root: Path) -> list[str]:
    files = sorted((root / "pycollective").rglob("*.py"))
    return [text for file in files for text in checker.check_imports(root, file)] + [
        *checker.check_python(root)
    ]


def test_a_package_in_order_has_no_violations(checker: ModuleType, root: Path) -> None:
    assert found(checker, root) == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("low/one.py", "from pycollective.high import one", "1: pycollective/low must not import high.one: "),
        ("low/one.py", "import pycollective.cli", "1: pycollective/low must not import cli: "),
        ("low/one.py", "\nimport pycollective", "2: pycollective/low must not import __init__: "),
        ("low/one.py", "from pycollective import barrier", "1: pycollective/low must not import __init__: "),
        (
            "low/one.py",
            "def f():\n    from pycollective import high",
            "2: pycollective/low must not import high: ",
        ),
        (
            "high/two.py",
            "from pycollective.high.inside import x",
            "pycollective/high must not import high.inside",
        ),
        (
            "high/__init__.py",
            "from pycollective.high.inside import x",
            "pycollective/high must not import high.inside",
        ),
        ("__init__.py", "from pycollective.cli import main", "pycollective/__init__ must not import cli: "),
        ("other/one.py", "", "1: other is no known folder"),
        ("other.py", "", "1: other is no known folder, and no known module at the top"),
        ("low/one.py", "import torch", "1: torch must be imported inside the function that uses it"),
    ],
)
def test_what_is_out_of_order_is_refused(
    checker: ModuleType, root: Path, name: str, text: str, says: str
) -> None:
    write(root, f"{name.rpartition('/')[0]}/__init__.py".lstrip("/"), "")
    write(root, name, text)
    assert says in found(checker, root)[0]


def test_an_init_may_load_at_first_use_what_lies_in_its_package(checker: ModuleType, root: Path) -> None:
    write(root, "high/__init__.py", "def f():\n    from pycollective.high import inside, one\n")
    assert found(checker, root) == []
    write(root, "high/__init__.py", "def f():\n    from pycollective import cli\n")
    assert ["must not import cli" in text for text in found(checker, root)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "from pycollective.low import two",
        "def f():\n    from pycollective.low.two import x",
        "if TYPE_CHECKING:\n    import pycollective.low.two",
    ],
)
def test_modules_that_import_each_other_are_refused_inside_of_a_folder_too(
    checker: ModuleType, root: Path, text: str
) -> None:
    write(root, "low/one.py", text)
    assert found(checker, root) == [
        "pycollective: these modules import each other in a circle: low.one, low.two"
    ]


def test_a_row_for_what_is_not_there_is_refused(
    checker: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "PYTHON", (*TABLE, "cupy high/gone"))
    assert found(checker, root) == [
        "scripts/check_layers: pycollective has no cupy",
        "scripts/check_layers: pycollective has no high/gone",
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("csrc/low/a.h", '#include "high/b.h"', "1: low must not include high/b.h: dependencies point down"),
        (
            "csrc/high/b.h",
            '#include "beside/c.h"',
            "1: high must not include beside/c.h: dependencies point down",
        ),
        ("csrc/other/a.h", "", "1: other is no known folder"),
        ("bindings/calls/a.cc", '#include "high/b.h"', ""),
    ],
)
def test_includes_point_down(
    checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.setattr(checker, "CPP", ("low", "high beside", "bindings/calls"))
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert list(checker.check_includes(tmp_path, file)) == [says] * bool(says)


def test_headers_in_a_circle_and_rows_without_a_folder_are_refused(
    checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "CPP", ("low", "gone"))
    (tmp_path / "csrc" / "low").mkdir(parents=True)
    for own, other in (("a.h", "b.h"), ("b.cc", "a.h"), ("c.h", "a.h")):
        (tmp_path / "csrc" / "low" / own).write_text(f'#include "low/{other}"\n#include <mutex>\n')
    assert list(checker.check_cpp(tmp_path)) == [
        "scripts/check_layers: there is no folder gone",
        "csrc: these modules include each other in a circle: low/a, low/b",
    ]


def test_longer_circles_are_found_once(checker: ModuleType) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "f"}}
    assert sorted(checker.circles(graph)) == [["a", "b", "c"], ["d", "e"]]


PICTURE = "```\ncli         commands\n{rows}_core       the core\n```\n\n```\nbase        types\n```\n"


def test_the_picture_has_the_rows_of_the_tables(
    checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "CPP", ("base",))
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text(
        "\n" + PICTURE.format(rows="__init__    names\nhigh, high/inside    more\nlow         less\n")
    )
    assert list(checker.check_picture(tmp_path)) == []
    page.write_text("\n" + PICTURE.format(rows="__init__    names\nhigh, high/inside    more\n"))
    assert list(checker.check_picture(tmp_path)) == [
        "ARCHITECTURE.md: the picture differs from scripts/check_layers in low"
    ]
    page.write_text("no picture\n")
    assert list(checker.check_picture(tmp_path)) == [
        "ARCHITECTURE.md: the pictures of the layers are missing"
    ]
    page.write_text(
        "\n" + PICTURE.format(rows="high, high/inside    more\n__init__    names\nlow         less\n")
    )
    assert list(checker.check_picture(tmp_path)) == [
        "ARCHITECTURE.md: the picture differs from scripts/check_layers in their order"
    ]
    page.unlink()
    assert list(checker.check_picture(tmp_path)) == [
        "ARCHITECTURE.md: the pictures of the layers are missing"
    ]


def test_the_picture_of_cpp_is_compared_as_well(
    checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "CPP", ("base", "more"))
    rows = "__init__    names\nhigh, high/inside    more\nlow         less\n"
    (tmp_path / "ARCHITECTURE.md").write_text("\n" + PICTURE.format(rows=rows))
    assert list(checker.check_picture(tmp_path)) == [
        "ARCHITECTURE.md: the picture differs from scripts/check_layers in more"
    ]
