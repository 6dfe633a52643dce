"""Attributes that objects have elsewhere are answered with what to write here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import foreign_words
from pycollective.advice import Elsewhere


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_a_communication_hook_is_answered_by_what_there_is(world_of_one: pc.Group) -> None:
    model = pc.torch.DataParallel(torch.nn.Linear(2, 1))
    with pytest.raises(pc.Unsupported, match=r'write pc\.torch\.DataParallel\(model, compression="f16"\)'):
        model.register_comm_hook(None, abs)


@pytest.mark.parametrize(
    ("kind", "name", "answer"),
    [
        ("Store", "user_set", r'write store\.set\("k", 1\)'),
        ("Store", "compare_set", r'write store\.add\("k"\) == 1'),
        ("Store", "queue_push", r"write store\.set"),
        ("Store", "delet", r"did you mean delete\?"),
        ("Meter", "avg", r"write meter\.mean, of this rank; over all ranks meter\.compute\(\)"),
        ("Meter", "val", r"write meter\.mean"),
        ("Group", "is_single_machine", r"write g\.local_size == g\.size"),
        ("Group", "key", "leave it out"),
        ("Work", "is_completed", r"write work\.done\(\)"),
        ("Work", "get_future", "write await work"),
        ("Mesh", "get_group", r'write mesh\["dp"\]'),
    ],
)
def test_an_attribute_of_elsewhere_is_answered_by_ours(
    world_of_one: pc.Group, kind: str, name: str, answer: str
) -> None:
    makers = {
        "Store": pc.store,
        "Meter": pc.metrics.Meter,
        "Group": pc.world,
        "Work": lambda: pc.allreduce_async(np.ones(2)),
        "Mesh": lambda: pc.Mesh((1,), ("dp",)),
    }
    owner = makers[kind]()
    with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute '{name}': .*{answer}"):
        getattr(owner, name)
    assert not hasattr(owner, name)


def test_an_unknown_attribute_gets_the_error_of_python(world_of_one: pc.Group) -> None:
    for name in ("xyzzy", "__wrapped__", "_set"):
        with pytest.raises(AttributeError, match=f"^'Store' object has no attribute '{name}'$"):
            getattr(pc.store(), name)


def test_every_attribute_of_the_table_is_answered() -> None:
    """Those of other classes are in the tests of their framework."""
    kinds: dict[str, Any] = {"Group": pc.Group, "Work": pc.Work, "Mesh": pc.Mesh, "Meter": pc.metrics.Meter}
    for words in foreign_words.ATTRIBUTES:
        for kind, _, name in (word.partition(".") for word in words.split()):
            if kind in kinds:
                with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
                    getattr(kinds[kind], name)
    for kind, owner in kinds.items():
        for name, value in vars(owner).items():
            assert (
                not isinstance(value, Elsewhere)
                or f"{kind}.{name}" in " ".join(foreign_words.ATTRIBUTES).split()
            )
