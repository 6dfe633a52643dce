"""Attributes that objects of other systems have raise an error that names what to write here."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective.base import foreign_words
from pycollective.base.advice import elsewhere


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_a_communication_hook_is_answered_by_what_there_is(world_of_one: pc.Group) -> None:
    model = pc.torch.DataParallel(torch.nn.Linear(2, 1))
    with pytest.raises(pc.Unsupported, match=r'write pc\.torch\.DataParallel\(model, compression="f16"\)'):
        model.register_comm_hook(None, abs)


MAKERS: dict[str, Callable[[], Any]] = {
    "Store": pc.store,
    "Meter": pc.metrics.Meter,
    "Group": pc.world,
    "Work": lambda: pc.allreduce_async(np.ones(2)),
    "Mesh": lambda: pc.Mesh((1,), ("dp",)),
}


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
        ("Group", "Get_rank", r"write g\.rank$"),
        ("Group", "Get_size", r"write g\.size$"),
        ("Group", "Allreduce", r"write g\.allreduce\(x\), which"),
        ("Group", "Bcast", r"write g\.broadcast\(x\), which"),
        ("Group", "Isend", r"write g\.send_async\(x, 1\), or g\.send\(x, 1\)$"),
        ("Group", "Split", r"write g\.split\(color, key\)$"),
        ("Group", "Free", r"write g\.close\(\)$"),
        ("Group", "get_group_rank", r"write g\.ranks\.index\(rank\)$"),
        ("Group", "cross_rank", r"write rank and size of g\.split\(g\.local_rank\), which"),
        ("Group", "get_backend", r"write pc\.info\(\)\.transport$"),
        ("Work", "Test", r"write work\.done\(\)$"),
        ("Work", "is_completed", r"write work\.done\(\)"),
        ("Work", "get_future", "write await work"),
        ("Group", "allreduse", r"did you mean allreduce\?"),
        ("Mesh", "get_group", r'write mesh\["dp"\]'),
    ],
)
def test_an_attribute_of_elsewhere_is_answered_by_ours(
    world_of_one: pc.Group, kind: str, name: str, answer: str
) -> None:
    owner = MAKERS[kind]()
    with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute '{name}': .*{answer}"):
        getattr(owner, name)
    assert not hasattr(owner, name)


def test_an_unknown_attribute_gets_the_error_of_python(world_of_one: pc.Group) -> None:
    for name in ("xyzzy", "__wrapped__", "_set"):
        with pytest.raises(AttributeError, match=f"^'Store' object has no attribute '{name}'$"):
            getattr(pc.store(), name)


def test_every_attribute_of_the_table_is_answered(world_of_one: pc.Group) -> None:
    """Attributes of other classes are in the tests of their framework."""
    objects = {kind: make() for kind, make in MAKERS.items()}
    for words in foreign_words.ATTRIBUTES:
        for kind, _, name in (word.partition(".") for word in words.split()):
            if kind in objects:
                with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
                    getattr(objects[kind], name)


def test_the_lines_for_a_queue_in_the_store_count_what_is_in_it(world_of_one: pc.Group) -> None:
    store = pc.store().prefix("a queue")
    push, pop, length = (
        re.split(", (?:which|the) ", foreign_words.ATTRIBUTES[words])[0]
        for words in ("Store.append Store.queue_push", "Store.queue_pop", "Store.queue_len")
    )
    for value in ("a", "b"):
        eval(push, {"store": store, "value": value})
    assert eval(length, {"store": store}) == 2
    assert eval(pop, {"store": store}) == "a"
    assert eval(length, {"store": store}) == 1


def test_a_word_for_a_function_is_answered_by_that_of_the_module_that_is_asked() -> None:
    asked = ["allreduce", "allgather", "send"]
    for word, there in (("all_reduce", "allreduce"), ("all_gather", "allgather"), ("remote_send", "send")):
        answer = str(foreign_words.missing("pycollective.torch.functional", word, asked))
        assert f"pc.torch.functional.{there}(x" in answer, answer
        assert f"pc.{there}(" not in answer, answer


def test_a_word_for_a_function_is_answered_by_what_a_group_has(world_of_one: pc.Group) -> None:
    """An attribute that is no method is not called in other systems."""
    for word in " ".join(foreign_words.NAMES).split():
        answer = str(foreign_words.missing_in(pc.Group, "Group", word))
        assert ": " in answer, word
        for name, call in re.findall(r"\bg\.(\w+)(\(?)", answer):
            assert callable(getattr(pc.Group, name)) == bool(call), answer


@pytest.mark.parametrize("kind", MAKERS)
def test_an_object_and_its_class_have_what_they_list(world_of_one: pc.Group, kind: str) -> None:
    made = MAKERS[kind]()
    for owner in (made, type(made)):
        assert [name for name in dir(owner) if not hasattr(owner, name)] == []


def test_an_object_does_not_list_what_its_class_has_elsewhere() -> None:
    @elsewhere("convert_sync_batchnorm")
    class Model:
        def train(self) -> None: ...

    class Own(Model):
        def convert_sync_batchnorm(self) -> None: ...

    assert "convert_sync_batchnorm" not in dir(Model())
    assert "train" in dir(Model())
    assert "convert_sync_batchnorm" in dir(Own())
    with pytest.raises(AttributeError, match="'Model' object has no attribute 'convert_sync_batchnorm'"):
        Model().convert_sync_batchnorm  # type: ignore[attr-defined]  # noqa: B018


def test_a_public_class_has_what_it_lists() -> None:
    classes = [each for each in (getattr(pc, name) for name in pc.__all__) if isinstance(each, type)]
    assert {pc.Group, pc.Work, pc.Mesh} <= {*classes}
    for owner in classes:
        assert [
            name for name in dir(owner) if name != "__abstractmethods__" and not hasattr(owner, name)
        ] == []


def test_arguments_of_other_stores_and_meters_are_answered(world_of_one: pc.Group) -> None:
    store: Any = pc.store()
    for call in (store.wait, store.check):
        with pytest.raises(
            TypeError, match=r"a key must be a str, not list: give keys one by one, as store\.wait"
        ):
            call(["a"])
    for late in (1, timedelta(seconds=1)):
        with pytest.raises(
            TypeError, match=f"not {type(late).__name__}: give a time by its name, as timeout="
        ):
            store.wait("a", late)
    meter: Any = pc.metrics.Meter()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'n': write weight="):
        meter.update(0.5, n=3)
