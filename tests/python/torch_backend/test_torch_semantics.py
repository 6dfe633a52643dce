"""To autograd, a collective that writes a tensor looks like any operation in place."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import torch
from waiting import eventually

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)


def test_a_write_bumps_the_version_counter_and_a_read_does_not(world_of_one: pc.Group) -> None:
    x, out = torch.ones(3), torch.zeros(3)
    pc.allreduce(x)
    assert x._version == 1
    pc.reduce(x, root=0)
    assert x._version == 2
    pc.allreduce(x, out=out)
    assert (x._version, out._version) == (2, 1)
    pc.broadcast(x, root=0)  # the root is only read
    assert x._version == 2
    with pytest.raises(pc.InvalidArgument):
        pc.allreduce(x, out=x[:2])
    assert x._version == 2


def test_every_tensor_of_a_list_counts_as_written(world_of_one: pc.Group) -> None:
    tensors = (torch.ones(3), torch.ones(2, 2))
    pc.allreduce(tensors)
    assert [x._version for x in tensors] == [1, 1]
    assert pc.allreduce_async(tensors).wait() is tensors
    assert [x._version for x in tensors] == [2, 2]
    pc.broadcast(tensors, root=0)  # the root is only read
    assert [x._version for x in tensors] == [2, 2]


def versions() -> None:
    x, out = torch.ones(3), torch.zeros(3)
    pc.allreduce_async(x, out=out).wait()
    assert (x._version, out._version) == (0, 1)
    assert out.tolist() == [2, 2, 2]
    pc.allreduce_async(x)
    pc.barrier()
    assert eventually(lambda: x._version == 1), "it is recorded without a wait"


def test_a_tensor_that_is_written_is_marked_as_such_when_the_call_ends() -> None:
    testing.run(versions, 2)


def test_a_leaf_that_requires_grad_is_written_as_under_no_grad(world_of_one: pc.Group) -> None:
    for leaf in (torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))):
        assert pc.allreduce(leaf) is leaf
        assert leaf.requires_grad
        assert leaf.is_leaf
        assert leaf._version == 1
        (leaf * 2).sum().backward()
        assert pc.allreduce(leaf.grad, "avg").tolist() == [2, 2, 2]


def test_a_non_leaf_is_refused_when_it_would_be_written_and_may_be_read(world_of_one: pc.Group) -> None:
    x = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(pc.InvalidArgument, match=r"x\.detach\(\)\.clone\(\)"):
        pc.allreduce(x)
    with pytest.raises(pc.InvalidArgument, match="allreduce: out requires grad"):
        pc.allreduce(torch.ones(3), out=x)
    assert x._version == 0
    assert pc.allreduce(x, out=torch.empty(3)).tolist() == [2, 2, 2]
    pc.broadcast(x, root=0)


def test_autograd_notices_that_a_saved_tensor_was_overwritten(world_of_one: pc.Group) -> None:
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (weight * x).sum()  # A tensor of a torch version without the exchange interface.
    pc.allreduce(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def lazily_negated() -> Any:
    return torch.ones(1, dtype=torch.complex64).conj().imag


class OldTensor(torch.Tensor):
    """A tensor of a torch that has no exchange interface yet."""

    __dlpack_c_exchange_api__ = None


def old(values: Any, **how: Any) -> Any:
    return torch.tensor(values, **how).as_subclass(OldTensor)


def test_older_torch_goes_through_dlpack_with_the_same_rules(world_of_one: pc.Group) -> None:
    x = old([1.0, 2.0])
    assert pc.allreduce(x) is x
    assert x._version == 1
    leaf = torch.nn.Parameter(torch.ones(2))
    assert pc.allreduce(x, out=leaf) is leaf
    assert leaf.tolist() == [1, 2]
    weight = torch.ones(2, requires_grad=True).as_subclass(OldTensor)  # not a leaf
    with pytest.raises(pc.InvalidArgument, match="requires grad"):
        pc.allreduce(weight)
    assert pc.allreduce(weight, out=np.empty(2, np.float32)).tolist() == [1, 1]
    columns = old([[1.0, 2.0], [3.0, 4.0]]).T
    assert pc.allreduce(columns) is columns  # not contiguous, so it is copied
    assert columns.tolist() == [[1, 3], [2, 4]]
    with pytest.raises(pc.InvalidArgument, match="lazily"):
        pc.allreduce(lazily_negated().as_subclass(OldTensor))


def test_tensors_from_inference_mode_are_written(world_of_one: pc.Group) -> None:
    with torch.inference_mode():
        x = torch.ones(3)
    assert pc.allreduce(x) is x


def change_the_storage_under_a_call(changed: str) -> Any:
    pc.allreduce(torch.ones(1))  # so that lookups made only once are done
    count = 1 << 24  # so large that freed memory is returned to the system
    if pc.rank() == 1:
        Path(changed).read_text()  # a named pipe: waits for the writer
        pc.send(np.ones(count, np.float32), 0)
        return None
    x = torch.zeros(count)
    sys.setswitchinterval(60)  # so that start() returns when recv() has released the GIL
    thread = threading.Thread(target=pc.recv, args=(x, 1))
    thread.start()
    sys.setswitchinterval(0.005)
    x.set_(torch.zeros(1))
    Path(changed).write_text("")
    thread.join()
    return x.tolist()


def test_the_memory_of_a_tensor_lives_as_long_as_the_call(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    os.mkfifo(changed)
    assert testing.run(change_the_storage_under_a_call, 2, str(changed))[0] == [0]


def test_the_default_device_of_torch_does_not_matter_to_cpu_tensors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nimport pycollective as pc\npc.init()\ntorch.set_default_device('cuda')\n"
        "print(pc.allreduce(torch.ones(3, device='cpu')).tolist())\n"
    )
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "[1.0, 1.0, 1.0]\n", ended.stderr
