"""pycollective.torch.functional: results and gradients against what they are by hand, eager and compiled."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

# Compiling imports torch's own old scripts, which warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Tensors = list[Any]  # one for each rank
CALLS = ["allgather", "allreduce", "alltoall", "broadcast", "recv", "reduce", "reduce_scatter", "send"]


def functional() -> Any:
    torch.set_num_threads(1)
    from pycollective.torch import functional

    return functional


def numbers(rank: int, *shape: int) -> Any:
    """Small whole numbers, so that every sum is exact."""
    count = torch.Size(shape).numel()
    return (torch.arange(1.0, count + 1, dtype=torch.float64) * (rank + 1)).view(shape)


# The call, and by hand: all ranks' results from their operands, and all gradients from theirs.
Case = tuple[Callable[..., Any], Callable[[Tensors], Tensors], Callable[[Tensors], Tensors]]


def cases(n: int) -> dict[str, Case]:
    def everywhere(x: Tensors) -> Tensors:
        return [torch.stack(x).sum(0)] * n

    def average(x: Tensors) -> Tensors:
        return [torch.stack(x).sum(0) / n] * n

    def only(root: int, x: Tensors) -> Tensors:
        return [everywhere(x)[0] if rank == root else torch.zeros_like(x[0]) for rank in range(n)]

    def joined(axis: int, x: Tensors) -> Tensors:
        return [torch.cat(x, axis)] * n

    def scattered(axis: int, x: Tensors) -> Tensors:
        return list(everywhere(x)[0].chunk(n, axis))

    def exchanged(axis: int, x: Tensors) -> Tensors:
        return [torch.cat([each.chunk(n, axis)[rank] for each in x], axis) for rank in range(n)]

    return {
        "allreduce": (lambda f, x: f.allreduce(x), everywhere, everywhere),
        "allreduce avg": (lambda f, x: f.allreduce(x, "mean"), average, average),
        "reduce": (lambda f, x: f.reduce(x, root=1), lambda x: only(1, x), lambda g: [g[1]] * n),
        "reduce avg": (
            lambda f, x: f.reduce(x, "avg", root=1),
            lambda x: [each / n for each in only(1, x)],
            lambda g: [g[1] / n] * n,
        ),
        "broadcast": (lambda f, x: f.broadcast(x, 1), lambda x: [x[1]] * n, lambda g: only(1, g)),
        "allgather": (lambda f, x: f.allgather(x), lambda x: joined(0, x), lambda g: scattered(0, g)),
        "reduce_scatter": (
            lambda f, x: f.reduce_scatter(x, axis=-1),
            lambda x: scattered(-1, x),
            lambda g: joined(-1, g),
        ),
        "reduce_scatter avg": (
            lambda f, x: f.reduce_scatter(x, "avg"),
            lambda x: [each / n for each in scattered(0, x)],
            lambda g: [each / n for each in joined(0, g)],
        ),
        "alltoall": (
            lambda f, x: f.alltoall(x, axis=1),
            lambda x: exchanged(1, x),
            lambda g: exchanged(1, g),
        ),
    }


def results_and_gradients() -> None:
    f, rank, n = functional(), pc.rank(), pc.size()
    for name, (call, result, gradient) in cases(n).items():
        operands = [numbers(r, n, 2 * n) for r in range(n)]
        x = operands[rank].clone().requires_grad_()
        y = call(f, x)
        torch.testing.assert_close(y, result(operands)[rank], rtol=1e-15, atol=0, msg=name)
        assert y.is_contiguous()
        assert torch.equal(x, operands[rank])
        g = [numbers(r + 1, *y.shape) for r in range(n)]
        y.backward(g[rank])
        torch.testing.assert_close(x.grad, gradient(g)[rank], rtol=1e-15, atol=0, msg=name)
        # The adjoint is linear in the gradient; its own adjoint is the call.
        probe = g[rank].clone().requires_grad_()
        (back,) = torch.autograd.grad(call(f, x), x, probe, create_graph=True)
        (again,) = torch.autograd.grad(back, probe, operands[rank])
        torch.testing.assert_close(again, result(operands)[rank], rtol=1e-15, atol=0, msg=name)
    total_derivative_by_differences(f, rank)
    of_a_group(f, rank)
    if n == 2:
        uneven_alltoall(f, rank)
        pipelines(f, rank)
        messages(f, rank)
        compiled_as_eager(f, rank)


def total_derivative_by_differences(f: Any, rank: int) -> None:
    """The derivative of the sum of all ranks' losses, along one direction on all ranks at once."""

    def total(x: Any) -> Any:
        y = f.allgather(f.reduce_scatter(x.sin(), "avg").exp() * (rank + 1))
        return (y * f.allreduce(x, "avg").cos().sum()).sum()

    generator = torch.Generator().manual_seed(rank)
    n = pc.size()
    x = torch.rand(2 * n, dtype=torch.float64, generator=generator).requires_grad_()
    direction = torch.rand(2 * n, dtype=torch.float64, generator=generator)
    total(x).backward()
    h = 1e-6
    with torch.no_grad():
        difference = (total(x + h * direction) - total(x - h * direction)) / (2 * h)
    sums = pc.allreduce([float(difference), float(x.grad @ direction)])
    assert sums[1] == pytest.approx(sums[0], rel=1e-7)


def of_a_group(f: Any, rank: int) -> None:
    pair = pc.group([1, 0])
    if pair is not None:
        x = torch.ones(2, requires_grad=True)
        f.allreduce(x, group=pair).sum().backward()
        assert x.grad.tolist() == [2, 2]


def uneven_alltoall(f: Any, rank: int) -> None:
    counts, recv_counts = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    x = numbers(rank, 4).requires_grad_()
    for call in (f.alltoall, torch.compile(f.alltoall, backend="aot_eager", fullgraph=True)):
        y = call(x, counts=counts, recv_counts=recv_counts)
        assert y.tolist() == ([1, 2, 4] if rank == 0 else [2, 3, 4, 6, 8])
        (g,) = torch.autograd.grad(y.square().sum(), x)
        assert torch.equal(g, 2 * x)


def pipelines(f: Any, rank: int) -> None:
    """A model that is cut in two has the gradients of the whole, also with several batches under way."""
    torch.manual_seed(0)
    first, last = torch.nn.Linear(3, 4).double(), torch.nn.Linear(4, 2).double()
    batches = [torch.randn(5, 3, dtype=torch.float64) for _ in range(3)]
    for x in batches:
        last(torch.tanh(first(x))).square().sum().backward()
    mine = list((first if rank == 0 else last).parameters())
    expected = [p.grad for p in mine]

    def begin(x: Any) -> Any:
        return f.send(torch.tanh(first(x)), 1, tag=3)

    def end(like: Any) -> Any:
        return last(f.recv(like, 0, tag=3)).square().sum()

    stage = begin if rank == 0 else end
    inputs = batches if rank == 0 else [torch.empty(5, 4, dtype=torch.float64)] * 3
    for call in (stage, torch.compile(stage, backend="aot_eager", fullgraph=True)):
        for p in mine:
            p.grad = None
        for loss in [call(each) for each in inputs]:
            loss.backward()
        for p, g in zip(mine, expected, strict=True):
            torch.testing.assert_close(p.grad, g, rtol=1e-12, atol=1e-12)


def number_of_the_world() -> int:
    from pycollective.torch.functional.live_groups import number_of

    return number_of(None)


def gradients_are_no_messages(f: Any, rank: int) -> None:
    """A gradient and a message of the same tag, to the same rank, are kept apart."""
    x = torch.ones(2, requires_grad=True)
    if rank == 0:
        token = f.send(x, 1)
        assert f.recv(x, 1).tolist() == [5, 5]
        token.backward()
        assert x.grad.tolist() == [7, 7]
    else:
        (7 * f.recv(x, 0)).sum().backward()
        f.send(torch.full((2,), 5.0), 0)


def messages(f: Any, rank: int) -> None:
    x = torch.ones(3, requires_grad=True)
    if rank == 0:
        token = f.send(x, 1)
        assert (token.shape, token.dtype, token.requires_grad) == ((), torch.float32, True)
        assert not f.send(x.detach(), 1).requires_grad
        f.send(torch.arange(3), 1)
    else:
        assert f.recv(x, 0).requires_grad
        assert not f.recv(x, 0, requires_grad=False).requires_grad
        assert f.recv(torch.arange(3), 0).tolist() == [0, 1, 2]
    with pytest.raises(pc.InvalidArgument, match="tag must be between"):
        f.recv(x, 1 - rank, tag=1 << 30)
    y = f.send(x, 1) if rank == 0 else f.recv(x, 0).sum()
    with pytest.raises(pc.Unsupported, match="second derivatives"):
        y.backward(create_graph=True)
    gradients_are_no_messages(f, rank)
    parameters = ([3], torch.float32, 1 - rank, 5, number_of_the_world(), None)
    if rank == 0:
        torch.library.opcheck(torch.ops.pycollective.send.default, (x, *parameters))
    else:
        anchor = torch.zeros((), requires_grad=True)
        torch.library.opcheck(torch.ops.pycollective.recv.default, (anchor, *parameters))


def counts_of_calls(call: Callable[[], Any]) -> list[int | None]:
    before = len(pc.debug.dump()["calls"])
    call()
    return [each["count"] for each in pc.debug.dump()["calls"][before:]]


def compiled_as_eager(f: Any, rank: int) -> None:
    """The same results and gradients, by the same calls in the same order."""
    pair = pc.group([1, 0])
    weight = numbers(rank, 4, 4)

    def every_call(x: Any, group: Any) -> Any:
        """Calls that nothing ties together, and one whose result nobody uses."""
        parts = [f.allreduce(x[:i], group=group).sum() for i in (3, 1, 2)]
        f.allreduce(x[0], group=group)
        y = f.allgather(f.reduce_scatter(x, "avg", group=group), axis=1, group=group).view(4, 4)
        return (f.alltoall(f.broadcast(y, 1)) @ f.reduce(x, root=1).T).sum() + sum(parts)

    def only_large_kernels(x: Any, group: Any) -> Any:
        """Nothing for which inductor calls the C++ compiler, which takes long."""
        first, second = f.allreduce(x @ weight, group=group), f.allreduce(weight[:2], group=group)
        return second @ first

    for function, backend, groups in (
        (every_call, "aot_eager", (None, pair)),
        (only_large_kernels, "inductor", (pair,)),
    ):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for group in groups:
            x = numbers(rank, 4, 4).requires_grad_()
            y = function(x, group)
            (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
            again = compiled(x, group)
            (h,) = torch.autograd.grad(again, x, torch.ones_like(y))
            assert torch.equal(again, y)
            assert torch.equal(h, g)

            def step(function: Any, x: Any = x, group: Any = group) -> None:
                y = function(x, group)
                torch.autograd.grad(y, x, torch.ones_like(y))

            eager = counts_of_calls(lambda function=function: step(function))
            assert len(eager) >= 3
            assert counts_of_calls(lambda compiled=compiled: step(compiled)) == eager


@pytest.mark.parametrize("n", [2, 3])
def test_results_and_gradients_are_those_by_hand_eager_and_compiled(n: int) -> None:
    testing.run(results_and_gradients, n)


def test_torch_finds_nothing_wrong_with_the_operations(world_of_one: pc.Group) -> None:
    functional()
    x = torch.ones(2, 2, requires_grad=True)
    ops = torch.ops.pycollective
    for op, *parameters in (
        (ops.allreduce, "sum"),
        (ops.reduce, "avg", 0),
        (ops.broadcast, 0),
        (ops.allgather, 1),
        (ops.reduce_scatter, "sum", 0),
        (ops.alltoall, 0, [2], [2]),
    ):
        torch.library.opcheck(op.default, (x, *parameters, number_of_the_world(), None))


def test_a_shape_depends_on_arguments_alone_as_caches_on_disk_need(world_of_one: pc.Group) -> None:
    functional()
    assert number_of_the_world() % 65536 == 1
    number = 99 * 65536 + 4  # of a group that does not exist, of 4 ranks
    x = torch.ones(8, 2, device="meta")
    assert torch.ops.pycollective.allgather(x, 1, number, None).shape == (8, 8)
    assert torch.ops.pycollective.reduce_scatter(x, "sum", 0, number, None).shape == (2, 2)


def test_what_has_no_gradient_or_no_axis_is_refused(world_of_one: pc.Group) -> None:
    f = functional()
    x = torch.ones(3, requires_grad=True)
    assert f.allreduce(x.detach(), "max").tolist() == [1, 1, 1]
    with torch.no_grad():
        assert f.reduce_scatter(x, "prod").tolist() == [1, 1, 1]
    rows: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: f.allreduce(x, "max"), pc.Unsupported, r"'max' has no gradient here: .*x\.detach"),
        (lambda: f.reduce(x, "min"), pc.Unsupported, "reduce: .*'min' has no gradient"),
        (lambda: f.reduce_scatter(x, "prod"), pc.Unsupported, "'prod' has no gradient"),
        (lambda: f.allgather(torch.ones(())), pc.InvalidArgument, "0 axes, and no axis 0"),
        (lambda: f.alltoall(x, axis=1), pc.InvalidArgument, "no axis 1"),
        (lambda: f.alltoall(x, counts=[3]), pc.InvalidArgument, "go together"),
        (lambda: f.send(x, 0, tag=-1), pc.InvalidArgument, "tag must be between"),
        (lambda: f.allreduce(x, group="world"), pc.InvalidArgument, "group must be"),
    ]
    for call, error, why in rows:
        with pytest.raises(error, match=why):
            call()


def test_groups_of_a_world_that_has_ended_are_named_and_forgotten() -> None:
    f = functional()
    from pycollective.torch.functional import live_groups

    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(f.allreduce, backend="aot_eager", fullgraph=True)
    pc.init()
    loss = f.allreduce(x, group=pc.group([0])).sum()
    compiled(x)
    pc.shutdown()
    for call in (loss.backward, lambda: f.allreduce(x)):
        with pytest.raises(pc.NotInitialized):
            call()
    pc.init()
    with pytest.raises(pc.NotInitialized, match=r"torch\.compiler\.reset"):
        compiled(x)
    assert f.allreduce(x).tolist() == [1, 1, 1]
    assert list(live_groups._live.values()) == [pc.world()]
    torch.compiler.reset()
    assert compiled(x).tolist() == [1, 1, 1]
    pc.shutdown()


@pytest.mark.parametrize("name", CALLS)
def test_the_example_runs(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(getattr(functional(), name).__doc__, {}, name, None, 0)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
