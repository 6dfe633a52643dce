"""Every public name has a docstring, and every example in one runs in a world of one."""

from __future__ import annotations

import doctest
import types
from typing import Any

import pytest
from arrays import torch

import pycollective as pc

if torch is not None:
    from pycollective.torch import functional

NAMES = {name: getattr(pc, name) for name in pc.__all__ if name not in ("ANY_SOURCE", "__version__")}
NAMES |= {"debug.dump": pc.debug.dump, "print": pc.print}
NAMES |= {
    f"{module.__name__.removeprefix('pycollective.')}.{name}": getattr(module, name)
    for module in (pc.checkpoint, pc.data, pc.metrics)
    for name in module.__all__
}
EXAMPLES = {
    name: value
    for name, value in NAMES.items()
    if not (isinstance(value, type) and issubclass(value, Exception))
}
EXAMPLES |= {
    f"{owner.__name__}.{name}": value
    for owner in (pc.Group, pc.Work)
    for name, value in vars(owner).items()
    if not name.startswith("_") and callable(value)
}
if torch is not None:
    NAMES |= {f"torch.{name}": getattr(pc.torch, name) for name in pc.torch.__all__}
    EXAMPLES |= {
        name: NAMES[name] for name in NAMES if name.startswith("torch.") and name != "torch.functional"
    }
    EXAMPLES |= {f"torch.functional.{name}": getattr(functional, name) for name in functional.__all__}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_explained(name: str) -> None:
    assert NAMES[name].__doc__


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str) -> None:
    value: Any = EXAMPLES[name]
    assert isinstance(
        value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
    )
    test = doctest.DocTestParser().get_doctest(value.__doc__, {}, name, None, 0)
    assert test.examples, f"{name} has no example"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not pc.is_initialized()
    assert not report, "".join(report)
