"""The tree of errors: which class catches which, their attributes, and that they can be pickled."""

from __future__ import annotations

import pickle

import pytest

import pycollective as pc
from pycollective import errors

ALL = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_a_collective_error_and_part_of_the_package(kind: type[pc.CollectiveError]) -> None:
    assert issubclass(kind, pc.CollectiveError)
    assert getattr(pc, kind.__name__) is kind
    assert kind.__name__ in (errors.__doc__ or "")
    assert kind.__doc__


@pytest.mark.parametrize("kind", ALL)
def test_errors_keep_message_and_attributes_through_pickle(kind: type[pc.CollectiveError]) -> None:
    error = kind("what happened", rank=3, peer=1, operation="allreduce #12", elapsed_s=1.5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "what happened"
    assert (copy.rank, copy.peer, copy.operation, copy.elapsed_s) == (3, 1, "allreduce #12", 1.5)


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(pc.InvalidArgument, ValueError)
    assert issubclass(pc.CollectiveTimeout, TimeoutError)
    assert issubclass(pc.PeerFailure, ConnectionError)
    for kind in (pc.PeerExited, pc.PeerUnresponsive, pc.PeerInterrupted):
        assert issubclass(kind, pc.PeerFailure)


def test_what_is_not_known_is_none() -> None:
    error = pc.Aborted("gone")
    assert (error.rank, error.peer, error.operation, error.elapsed_s) == (None, None, None, None)
