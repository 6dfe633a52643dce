"""pycollective.torch.functional: results and gradients, eager and compiled, against known ones."""

from __future__ import annotations

import doctest
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from arrays import torch
from functional_calls import compiled, functional, number_of_the_world, numbers
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

# Compiling imports torch's own old scripts, which warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CHECKS = Checks()
Tensors = list[Any]  # one for each rank
CALLS = (
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
)


class Case(NamedTuple):
    """A call in a group, and by hand: all ranks' results from their operands, and the gradients."""

    call: Callable[[Any, Any, Any], Any]
    results: Callable[[Tensors], Tensors]
    gradients: Callable[[Tensors], Tensors]


def reductions(n: int) -> dict[str, Case]:
    def everywhere(x: Tensors) -> Tensors:
        return [torch.stack(x).sum(0)] * n

    def average(x: Tensors) -> Tensors:
        return [torch.stack(x).sum(0) / n] * n

    def only(root: int, x: Tensors) -> Tensors:
        return [everywhere(x)[0] if rank == root else torch.zeros_like(x[0]) for rank in range(n)]

    return {
        "allreduce": Case(lambda f, x, g: f.allreduce(x, group=g), everywhere, everywhere),
        "allreduce_avg": Case(lambda f, x, g: f.allreduce(x, "mean", group=g), average, average),
        "reduce": Case(
            lambda f, x, g: f.reduce(x, "add", root=1, group=g), lambda x: only(1, x), lambda g: [g[1]] * n
        ),
        "reduce_avg": Case(
            lambda f, x, g: f.reduce(x, "avg", root=1, group=g),
            lambda x: [each / n for each in only(1, x)],
            lambda g: [g[1] / n] * n,
        ),
        "broadcast": Case(
            lambda f, x, g: f.broadcast(x, 1, group=g), lambda x: [x[1]] * n, lambda g: only(1, g)
        ),
    }


def parts(n: int) -> dict[str, Case]:
    def joined(axis: int, x: Tensors) -> Tensors:
        return [torch.cat(x, axis)] * n

    def scattered(axis: int, x: Tensors) -> Tensors:
        return list(torch.stack(x).sum(0).chunk(n, axis))

    def exchanged(axis: int, concat_axis: int, x: Tensors) -> Tensors:
        return [torch.cat([each.chunk(n, axis)[rank] for each in x], concat_axis) for rank in range(n)]

    def at_root(x: Tensors) -> Tensors:
        return [each if rank == 1 else torch.zeros_like(each) for rank, each in enumerate(x)]

    return {
        "allgather": Case(
            lambda f, x, g: f.allgather(x, group=g), lambda x: joined(0, x), lambda g: scattered(0, g)
        ),
        "reduce_scatter": Case(
            lambda f, x, g: f.reduce_scatter(x, axis=-1, group=g),
            lambda x: scattered(-1, x),
            lambda g: joined(-1, g),
        ),
        "reduce_scatter_avg": Case(
            lambda f, x, g: f.reduce_scatter(x, "avg", group=g),
            lambda x: [each / n for each in scattered(0, x)],
            lambda g: [each / n for each in joined(0, g)],
        ),
        "gather": Case(
            lambda f, x, g: f.gather(x, 1, axis=1, group=g),
            lambda x: at_root(joined(1, x)),
            lambda g: list(g[1].chunk(n, 1)),
        ),
        "scatter": Case(
            lambda f, x, g: f.scatter(x, 1, group=g),
            lambda x: list(x[1].chunk(n)),
            lambda g: at_root(joined(0, g)),
        ),
        "alltoall": Case(
            lambda f, x, g: f.alltoall(x, axis=1, group=g),
            lambda x: exchanged(1, 1, x),
            lambda g: exchanged(1, 1, g),
        ),
        "alltoall_to_another_axis": Case(
            lambda f, x, g: f.alltoall(x, axis=1, concat_axis=0, group=g),
            lambda x: exchanged(1, 0, x),
            lambda g: exchanged(0, 1, g),
        ),
    }


class Trial:
    """A case on this rank of a group. Each of its promises is a check."""

    def __init__(self, name: str, group: Any = None) -> None:
        members = group or pc.world()
        self.rank, n = members.rank, members.size
        call, self._results, self._gradients = (reductions(n) | parts(n))[name]
        f = functional()
        self.call = lambda x: call(f, x, group)
        self.operands = [numbers(r, n, 2 * n) for r in range(n)]
        self.expected = self._results(self.operands)[self.rank]
        self.weights = [
            numbers(r + 1, *self.expected.shape) for r in range(n)
        ]  # the gradients of the results
        self.expected_gradient = self._gradients(self.weights)[self.rank]

    def operand(self) -> Any:
        return self.operands[self.rank].clone().requires_grad_()

    def result(self) -> None:
        x = self.operand()
        y = self.call(x)
        close(y, self.expected)
        assert y.is_contiguous()
        assert torch.equal(x, self.operands[self.rank])

    def gradient(self) -> None:
        x = self.operand()
        self.call(x).backward(self.weights[self.rank])
        close(x.grad, self.expected_gradient)

    def second_derivative(self) -> None:
        """The adjoint is linear in the gradient. Its own adjoint is the call."""
        x, weight = self.operand(), self.weights[self.rank].clone().requires_grad_()
        (back,) = torch.autograd.grad(self.call(x), x, weight, create_graph=True)
        (again,) = torch.autograd.grad(back, weight, self.operands[self.rank])
        close(again, self.expected)

    def no_gradient_in_no_grad(self) -> None:
        with torch.no_grad():
            y = self.call(self.operand())
        close(y, self.expected)
        assert not y.requires_grad

    def result_and_gradient_compiled(self) -> None:
        self.call = compiled(self.call)
        self.result()
        self.gradient()


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)


def in_the_world(name: str, promise: Callable[[Trial], None]) -> None:
    promise(Trial(name))


def in_a_part(name: str, promise: Callable[[Trial], None]) -> None:
    """Runs it in a group with another order than the world, without a rank if there are three."""
    if group := pc.group([pc.size() - 1, 0]):
        promise(Trial(name, group))


for _name in reductions(2) | parts(2):
    for _promise in (
        Trial.result,
        Trial.gradient,
        Trial.second_derivative,
        Trial.no_gradient_in_no_grad,
    ):
        for _where in (in_the_world, in_a_part):
            _check = functools.partial(_where, _name, _promise)
            CHECKS.add(f"{_name}: {_promise.__name__} {_where.__name__}", _check, 2, 3)
    _check = functools.partial(in_a_part, _name, Trial.result_and_gradient_compiled)
    CHECKS.add(f"{_name}: result_and_gradient_compiled in_a_part", _check, 2)


@CHECKS.on(2, 3)
def gradients_are_the_total_derivative_by_differences() -> None:
    """Checks the derivative of the sum of all ranks' losses, along one direction on all ranks."""
    f, rank, n = functional(), pc.rank(), pc.size()

    def total(x: Any) -> Any:
        y = f.allgather(f.reduce_scatter(x.sin(), "avg").exp() * (rank + 1))
        return (y * f.allreduce(x, "avg").cos().sum()).sum()

    generator = torch.Generator().manual_seed(rank)
    x = torch.rand(2 * n, dtype=torch.float64, generator=generator).requires_grad_()
    direction = torch.rand(2 * n, dtype=torch.float64, generator=generator)
    total(x).backward()
    h = 1e-6
    with torch.no_grad():
        difference = (total(x + h * direction) - total(x - h * direction)) / (2 * h)
    sums = pc.allreduce([float(difference), float(x.grad @ direction)])
    assert sums[1] == pytest.approx(sums[0], rel=1e-7)


@CHECKS.on(2)
def gradients_of_complex_numbers_are_those_of_torch() -> None:
    z = torch.complex(numbers(pc.rank(), 3), numbers(pc.rank() + 1, 3))
    x, y = z.clone().requires_grad_(), z.clone().requires_grad_()
    weight = 2 + 1j
    ours = (weight * functional().allreduce(x)).abs().square().sum()
    ours.backward()
    torchs = (weight * (y + pc.allreduce(z.clone()) - z)).abs().square().sum()
    torchs.backward()
    close(x.grad, 2 * y.grad)  # both ranks have the same loss


@CHECKS.on(2)
def gradients_that_are_not_in_one_block_arrive() -> None:
    f, x = functional(), torch.ones(2, 4, requires_grad=True)
    f.allgather(x).sum().backward()  # expanded from one number
    f.allgather(x).backward(torch.ones(4, 4).t())
    assert x.grad.tolist() == [[4.0] * 4] * 2


@CHECKS.on(2)
def vmap_over_collectives_is_a_call_for_each() -> None:
    x = numbers(pc.rank(), 3, 2)
    assert torch.equal(torch.func.vmap(functional().allreduce)(x), numbers(2, 3, 2))


def _uneven(call: Callable[..., Any]) -> None:
    counts, recv_counts = ([1, 3], [1, 2]) if pc.rank() == 0 else ([2, 2], [3, 2])
    x = numbers(pc.rank(), 4).requires_grad_()
    y = call(x, counts=counts, recv_counts=recv_counts)
    assert y.tolist() == ([1, 2, 4] if pc.rank() == 0 else [2, 3, 4, 6, 8])
    (g,) = torch.autograd.grad(y.square().sum(), x)
    assert torch.equal(g, 2 * x)


@CHECKS.on(2)
def alltoall_of_uneven_parts() -> None:
    _uneven(functional().alltoall)


@CHECKS.on(2)
def alltoall_of_uneven_parts_compiled() -> None:
    _uneven(compiled(functional().alltoall))


OTHER_OPS = {"max": (2, 4), "min": (1, 2), "prod": (2, 8)}  # and the results of (1, 2) and (2, 4)


def _other_op(op: str, compile: bool) -> None:
    """Checks results without a gradient."""
    f, expected = functional(), OTHER_OPS[op]

    def calls(x: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            scattered = f.reduce_scatter(x, op)
        return f.allreduce(x.detach(), op), f.reduce(x.detach(), op, root=1), scattered

    everywhere, at_root, scattered = (compiled(calls) if compile else calls)(
        numbers(pc.rank(), 2).requires_grad_()
    )
    assert everywhere.tolist() == list(expected)
    assert at_root.tolist() == (list(expected) if pc.rank() == 1 else [0, 0])
    assert scattered.tolist() == [expected[pc.rank()]]


def _other_op_refused(op: str, call: str) -> None:
    with pytest.raises(pc.Unsupported, match=f"{call}: .*'{op}' has no gradient"):
        getattr(functional(), call)(torch.ones(2, requires_grad=True), op)


for _op in OTHER_OPS:
    CHECKS.add(f"{_op}_without_gradient", functools.partial(_other_op, _op, False), 2)
    for _call in ("reduce", "reduce_scatter", *(["allreduce"] if _op == "prod" else [])):
        CHECKS.add(f"{_call}_{_op}_has_no_gradient", functools.partial(_other_op_refused, _op, _call), 2)
CHECKS.add("max_without_gradient_compiled", functools.partial(_other_op, "max", True), 2)


@CHECKS.on(2)
def max_has_no_gradient_compiled() -> None:
    f = functional()
    torch.compiler.reset()
    with pytest.raises(pc.Unsupported, match="reduce: .*'max' has no gradient"):
        torch.compile(lambda x: f.reduce(2 * x, "max"), backend="aot_eager")(
            torch.ones(2, requires_grad=True)
        )


def _extremum(wrap: Callable[..., Any]) -> None:
    rank, size = pc.rank(), pc.size()
    f = functional()
    call = wrap(lambda x, op: f.allreduce(x, op))
    total = torch.stack([numbers(each, 3) for each in range(size)]).sum(0)
    for op, owner, others in (("max", size - 1, 0), ("min", 0, size - 1)):
        x = torch.tensor([rank, 1.0, -rank], dtype=torch.float64, requires_grad=True)
        y = call(x, op)
        assert y.tolist() == [owner, 1, -others]
        y.backward(numbers(rank, 3))
        close(x.grad, total * torch.tensor([rank == owner, 1, rank == others]) / torch.tensor([1, size, 1]))


@CHECKS.on(2)
def the_gradient_of_a_nan_that_max_finds_is_that_of_its_rank() -> None:
    x = torch.tensor([torch.nan if pc.rank() == 1 else 1.0, 1.0], requires_grad=True)
    functional().allreduce(x, "max").backward(torch.tensor([3.0, 1.0]))
    assert x.grad.tolist() == [6 if pc.rank() == 1 else 0, 1]


@CHECKS.on(1)
def owners_of_an_extremum_are_counted_without_rounding() -> None:
    functional()
    from pycollective.torch.functional import reductions

    x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    y = reductions.allreduce(x, "max")
    with pytest.MonkeyPatch.context() as patch:
        sums = iter([257, 3])  # of owners, of which bfloat16 has 256 or 258; of their gradients
        patch.setattr(reductions, "_allreduce", lambda each, *_: torch.full_like(each, next(sums)))
        y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3 / 257))
    assert 3 / 257 != x.grad[0].item() != torch.tensor(3 / 256).bfloat16().item()


@CHECKS.on(2, 3)
def the_gradient_of_min_and_max_goes_to_the_ranks_that_have_the_element() -> None:
    _extremum(lambda call: call)


@CHECKS.on(2)
def the_gradient_of_min_and_max_compiled() -> None:
    _extremum(compiled)


@CHECKS.on(2)
def parts_that_do_not_fit_side_by_side_on_one_rank_keep_no_other_waiting() -> None:
    rank = pc.rank()
    x = torch.full((1, 2 + rank), float(rank))

    def exchanged() -> Any:
        return functional().alltoall(
            x, counts=[1 + rank, 1], recv_counts=[1, 2 - rank], axis=1, concat_axis=0
        )

    if rank == 0:
        with pytest.raises(pc.InvalidArgument, match=r"lengths \[1, 2\] in axis 1 cannot stand side by side"):
            exchanged()
    else:
        assert exchanged().tolist() == [[0], [1]]
    assert pc.allreduce(1) == 2


def counts_of_calls(call: Callable[[], Any]) -> list[int | None]:
    before = len(pc.debug.dump()["calls"])
    call()
    return [each["count"] for each in pc.debug.dump()["calls"][before:]]


def assert_compiled_as_eager(function: Callable[[Any], Any], backend: str) -> None:
    """Checks that results, gradients, and the order of the calls are the same."""
    x = numbers(pc.rank(), 4, 4).requires_grad_()

    def step(function: Callable[[Any], Any]) -> tuple[Any, Any]:
        y = function(x)
        return y, torch.autograd.grad(y, x, torch.ones_like(y))[0]

    fast = compiled(function, backend)
    for found, expected in zip(step(fast), step(function), strict=True):
        assert torch.equal(found, expected)
    eager = counts_of_calls(lambda: step(function))
    assert len(eager) >= 3
    assert counts_of_calls(lambda: step(fast)) == eager


def _in_their_order(pair: pc.Group | None) -> None:
    f = functional()

    def every_call(x: Any) -> Any:
        """Makes independent calls, and one with an unused result."""
        parts = [f.allreduce(x[:i], group=pair).sum() for i in (3, 1, 2)]
        f.allreduce(x[0], group=pair)
        y = f.allgather(f.reduce_scatter(x, "avg", group=pair), axis=1, group=pair).view(4, 4)
        return (f.alltoall(f.broadcast(y, 1)) @ f.reduce(x, root=1).T).sum() + sum(parts)

    assert_compiled_as_eager(every_call, "aot_eager")


@CHECKS.on(2)
def compiled_calls_keep_their_order_and_none_is_left_out() -> None:
    _in_their_order(None)


@CHECKS.on(2)
def compiled_calls_of_two_groups_keep_their_order_and_none_is_left_out() -> None:
    _in_their_order(pc.group([1, 0]))


@CHECKS.on(2)
def inductor_keeps_the_calls_and_their_order() -> None:
    f, pair, weight = functional(), pc.group([1, 0]), numbers(pc.rank(), 4, 4)

    def only_large_kernels(x: Any) -> Any:
        """Avoids small kernels, for which inductor calls the C++ compiler, which takes long."""
        first, second = f.allreduce(x @ weight, group=pair), f.allreduce(weight[:2], group=pair)
        return second @ first

    assert_compiled_as_eager(only_large_kernels, "inductor")


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)


OPERATIONS = {
    "allreduce": ("sum",),
    "reduce": ("avg", 0),
    "broadcast": (0,),
    "allgather": (1,),
    "reduce_scatter": ("sum", 0),
    "gather": (1, 0),
    "scatter": (0, 0),
    "alltoall": (0, [2], [2]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_torch_finds_nothing_wrong_with_the_operation(world_of_one: pc.Group, name: str) -> None:
    functional()
    op = getattr(torch.ops.pycollective, name).default
    x = torch.ones(2, 2, requires_grad=True)
    torch.library.opcheck(op, (x, *OPERATIONS[name], number_of_the_world(), None))


def test_a_shape_depends_on_arguments_alone_as_caches_on_disk_need(world_of_one: pc.Group) -> None:
    functional()
    assert number_of_the_world() % 65536 == 1
    number = 99 * 65536 + 4  # of a group of 4 ranks that does not exist
    x = torch.ones(8, 2, device="meta")
    assert torch.ops.pycollective.allgather(x, 1, number, None).shape == (8, 8)
    assert torch.ops.pycollective.reduce_scatter(x, "sum", 0, number, None).shape == (2, 2)


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no axis at all": (lambda f, x: f.allgather(x[0]), "0 axes, and no axis 0"),
    "no other axis": (lambda f, x: f.alltoall(x, concat_axis=1), "no axis 1"),
    "no axis to scatter": (lambda f, x: f.scatter(x, axis=1), "no axis 1"),
    "no such axis": (lambda f, x: f.alltoall(x, axis=1), "no axis 1"),
    "counts alone": (lambda f, x: f.alltoall(x, counts=[3]), "go together"),
    "a negative tag": (lambda f, x: f.send(x, 0, tag=-1), "tag must be between"),
    "a tag of gradients": (lambda f, x: f.recv(x, 0, tag=1 << 30), "tag must be between"),
    "no group": (lambda f, x: f.allreduce(x, group="world"), "group must be"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused(world_of_one: pc.Group, what: str) -> None:
    call, why = WRONG[what]
    with pytest.raises(pc.InvalidArgument, match=why):
        call(functional(), torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    "name", ["allreduce", "broadcast", "allgather", "reduce_scatter", "gather", "scatter", "alltoall"]
)
def test_forward_mode_derivatives_are_refused_instead_of_zero(world_of_one: pc.Group, name: str) -> None:
    call, x = getattr(functional(), name), torch.ones(2)
    with pytest.raises(pc.Unsupported, match=f"{name}: .*forward-mode"):
        torch.func.jvp(call, (x,), (x,))


def test_torch_func_grad_is_refused(world_of_one: pc.Group) -> None:
    f = functional()
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: f.allreduce(x).sum())(torch.ones(3))


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
