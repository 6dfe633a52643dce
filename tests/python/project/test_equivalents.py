"""What has a name in other systems and is a line or two here.

docs/coming-from.md quotes these lines.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import named_checks
import numpy as np
import pytest
from arrays import torch

import pycollective as pc

CHECKS = named_checks.Checks()


def of_all_ranks(x: np.ndarray) -> list[np.ndarray]:
    return pc.allgather_object(x)


# ---- groups


@CHECKS.on(2, 3, 4)
def a_group_knows_its_ranks_and_whether_it_is_on_one_host() -> None:
    g = pc.world().split(pc.rank() % 2)
    assert g is not None
    for r in g.ranks:
        assert g.ranks[g.ranks.index(r)] == r
    assert g.local_size == g.size
    assert g.ranks[g.rank] == pc.rank()
    before = pc.info().groups
    again = pc.group(g.ranks)
    assert again is not None
    assert pc.info().groups == before + 1


@CHECKS.on(4)
def subgroups_of_equal_size_are_a_split_and_two_groups_become_one() -> None:
    a = pc.world().split(pc.rank() // 2)
    assert a is not None
    assert a.ranks == (pc.rank() // 2 * 2, pc.rank() // 2 * 2 + 1)
    rows = [[0, 3], [1, 2]]
    mine = pc.world().split(next(color for color, row in enumerate(rows) if pc.rank() in row))
    assert mine is not None
    assert list(mine.ranks) in rows
    ours, theirs = ([0, 1], [3, 2])
    both = pc.group([*ours, *theirs])
    assert both is not None
    assert both.ranks == (0, 1, 3, 2)


@CHECKS.on(3, 4)
def a_smaller_group_goes_on_without_the_others() -> None:
    g = pc.group(range(pc.size() - 1))
    if g is not None:
        assert g.allreduce(1) == pc.size() - 1


@CHECKS.on(1, 2, 3)
def calls_on_a_group_of_one_stay_here() -> None:
    g = pc.group([pc.rank()])
    assert g is not None
    x = np.full(3, pc.rank() + 1.0)
    assert g.allreduce(x)[0] == pc.rank() + 1
    g.barrier()
    assert pc.allreduce(1) == pc.size()


# ---- collectives


@CHECKS.on(2, 3)
def what_alltoall_cuts_along_one_axis_is_joined_along_another() -> None:
    size, rank = pc.size(), pc.rank()
    for split, concat in ((0, 1), (1, 0), (2, 1), (1, 1)):
        x = np.arange(8 * size**3).reshape(2 * size, size, 4 * size) + 1000 * rank
        sent = of_all_ranks(x)
        expected = np.concatenate([np.split(each, size, axis=split)[rank] for each in sent], axis=concat)
        y = np.concatenate(np.split(pc.alltoall(x, axis=split), size, axis=split), axis=concat)
        np.testing.assert_array_equal(y, expected)


@CHECKS.on(1, 2, 3, 4)
def mean_and_variance_are_those_of_all_samples() -> None:
    x = np.arange(3 * pc.rank() * 2.0).reshape(-1, 2) + 1e6  # rank 0 has none
    whole = np.concatenate(of_all_ranks(x))
    if not len(whole):
        return
    n = pc.allreduce(len(x))
    mean = pc.allreduce(x.sum(0)) / n
    variance = pc.allreduce(((x - mean) ** 2).sum(0)) / n
    np.testing.assert_allclose(mean, whole.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, whole.var(0), rtol=1e-9)


@CHECKS.on(2, 3)
def an_observer_sees_the_range_of_all_ranks() -> None:
    x = np.array([-1.0, 2.0]) * (pc.rank() + 1)
    low, high = pc.allreduce(x.min(), "min"), pc.allreduce(x.max(), "max")
    assert (low, high) == (-pc.size(), 2 * pc.size())


@CHECKS.on(2, 3)
def integers_of_64_bits_are_exact() -> None:
    large = 2**62 // pc.size() - 1  # it would be rounded as a float
    assert pc.allreduce(np.array([large]))[0] == large * pc.size()
    assert pc.broadcast(np.array([large * (pc.rank() + 1)]))[0] == large
    assert pc.reduce(np.array([large]), "max")[0] == large
    assert pc.allreduce(np.array([large + pc.rank()]), "max")[0] == large + pc.size() - 1


@CHECKS.on(2, 3)
def reduce_leaves_the_array_alone_off_the_root() -> None:
    x = np.array([pc.rank() + 1.0])
    assert pc.reduce(x, "sum", root=0) is x
    assert x[0] == (pc.size() * (pc.size() + 1) / 2 if pc.rank() == 0 else pc.rank() + 1)


@CHECKS.on(2, 3)
def many_arrays_are_packed_in_one_and_cut_again() -> None:
    params = [np.full((2, 3), 1.0), np.full(4, 2.0), np.array(3.0)]
    flat = np.concatenate([p.ravel() for p in params])
    parts = np.split(pc.allreduce(flat), np.cumsum([p.size for p in params])[:-1])
    assert [float(part[0]) for part in parts] == [pc.size(), 2 * pc.size(), 3 * pc.size()]
    pc.allreduce(params)  # packs them itself
    assert [float(p.flat[0]) for p in params] == [pc.size(), 2 * pc.size(), 3 * pc.size()]


@CHECKS.on(2, 3)
def a_batch_of_messages_is_begun_and_then_waited_for() -> None:
    x, y = np.full(3, pc.rank()), np.empty(3, int)
    after, before = (pc.rank() + 1) % pc.size(), (pc.rank() - 1) % pc.size()
    works = [pc.send_async(x, after), pc.recv_async(y, before)]
    [w.wait() for w in works]
    assert y[0] == before
    assert pc.sendrecv(x, after, before)[0] == before


@CHECKS.on(2)
def a_work_returns_how_its_call_ended() -> None:
    w = pc.allreduce_async(np.ones(3))
    assert w.wait(timeout=10)[0] == 2
    assert w.done()
    assert w.exception() is None
    assert w.result().dtype == float


# ---- the store


@CHECKS.on(2, 3)
def one_rank_claims_a_key() -> None:
    s = pc.store("claims")
    first = s.add("claim") == 1
    assert pc.allreduce(int(first)) == 1


@CHECKS.on(2)
def a_key_that_is_not_there_is_a_timeout() -> None:
    s = pc.store("keys")
    with pytest.raises(pc.CollectiveTimeout):
        s.wait("k", timeout=0.1)
    pc.barrier()
    s.set("k", 1)
    s.wait("k", timeout=10)
    assert [s.get(k) for k in ("k", "k")] == [1, 1]


@CHECKS.on(2, 3)
def a_queue_is_a_counter_and_keys() -> None:
    s = pc.store("queue")
    s.set(f"q/{s.add('n')}", pc.rank())
    found = pc.single_process(lambda: [s.pop(f"q/{i}") for i in range(1, pc.size() + 1)])()
    assert sorted(found) == list(range(pc.size()))


@CHECKS.on(2)
def shapes_are_exchanged_by_the_store() -> None:
    s = pc.store("shapes")
    x = np.ones((3, pc.rank() + 2), "float32")
    s.set(f"shape/{pc.rank()}", [list(x.shape), str(x.dtype)])
    assert s.get("shape/1") == [[3, 3], "float32"]


# ---- data


@CHECKS.on(1, 2, 3)
def every_rank_has_its_samples_and_the_next_epoch_others() -> None:
    for uneven, count in (("pad", -(-10 // pc.size()) * pc.size()), ("drop", 10 // pc.size() * pc.size())):
        sampler = pc.data.Sampler(10, shuffle=True, seed=3, uneven=uneven)
        first, second = list(sampler), list(sampler)
        assert first != second
        of_all = [sample for some in pc.allgather_object(first) for sample in some]
        assert len(of_all) == count
        assert len(set(of_all)) == min(count, 10)
        sampler.set_epoch(0)
        assert list(sampler) == first


@CHECKS.on(1, 2, 3)
def batches_are_cut_by_the_global_size_or_that_of_a_rank() -> None:
    whole = pc.data.BatchSampler(24, global_batch_size=6)
    of_rank = pc.data.BatchSampler(24, batch_size_per_rank=6 // pc.size(), uneven="drop")
    for batch, same in zip(whole, of_rank, strict=True):
        assert list(batch) == list(same)
        assert len(batch) == 6 // pc.size()


@CHECKS.on(1, 2, 3)
def a_stream_is_shared_out() -> None:
    assert list(pc.data.shard(range(7), uneven="exact")) == list(range(7))[pc.rank() :: pc.size()]


@CHECKS.on(1, 2, 3)
def an_evaluation_counts_every_sample_once() -> None:
    sampler = pc.data.Sampler(10, uneven="exact")
    values = np.array([sample * 2.0 for sample in sampler])
    np.testing.assert_array_equal(pc.data.gather(values, sampler), np.arange(10) * 2.0)


# ---- figures and files


@CHECKS.on(1, 2, 3)
def figures_of_uneven_batches_are_one_call() -> None:
    losses = np.arange(3.0 + pc.rank())
    means = pc.metrics.mean({"loss": losses.mean(), "top1": 0.5}, weight=len(losses))
    assert means == {"loss": pytest.approx(np.concatenate(of_all_ranks(losses)).mean()), "top1": 0.5}


@CHECKS.on(1, 2, 3)
def meters_add_up_and_know_the_figure_of_all_ranks() -> None:
    meter = pc.metrics.Meter()
    meter.update(1.0, 2)
    meter.update(pc.rank() + 1.0, 2)
    assert meter.mean == (pc.rank() + 2) / 2
    assert meter.compute() == (1 + (pc.size() + 1) / 2) / 2


@CHECKS.on(2)
def answers_among_the_best_are_counted() -> None:
    logits, labels = np.eye(6)[:, [0, 1, 2, 3, 5, 4]] + np.arange(6) / 100, np.arange(6)
    top1, top5 = pc.metrics.accuracy(logits, labels, topk=(1, 5))
    assert pc.metrics.compute({"top1": top1, "top5": top5}) == {"top1": 4 / 6, "top5": 1.0}


@CHECKS.on(1, 2)
def one_rank_prints_and_shows_how_far_it_is() -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        pc.print("epoch", 3)
        assert list(pc.progress(range(10))) == list(range(10))
    assert out.getvalue() == ("epoch 3\n" if pc.rank() == 0 else "")
    assert ("10/10" in err.getvalue()) == (pc.rank() == 0)


@CHECKS.on(1, 2, 3)
def what_is_saved_is_loaded_on_all_ranks() -> None:
    path = Path(pc.broadcast_object(tempfile.mkdtemp())) / "state"
    pc.checkpoint.save({"w": np.full(3, pc.rank()), "epoch": 4}, path)
    state = pc.checkpoint.load(path)
    assert state["epoch"] == 4
    np.testing.assert_array_equal(state["w"], np.zeros(3))


# ---- training


@CHECKS.on(1, 2, 3)
def a_sharded_optimizer_is_reduce_scatter_and_allgather() -> None:
    parameters, lr = np.arange(7.0), 0.5
    gradient = np.full(7, pc.rank() + 1.0)
    expected = parameters - lr * (pc.size() + 1) / 2
    part = pc.reduce_scatter(gradient, "avg", counts="auto")
    mine = np.array_split(parameters, pc.size())[pc.rank()]
    mine -= lr * part  # and the optimizer's state of this part alone
    parameters = pc.allgather(mine, counts="auto")
    np.testing.assert_allclose(parameters, expected)


@CHECKS.on(2, 3)
def all_ranks_call_and_wait_for_each_other() -> None:
    order = pc.store("order")

    def save() -> None:
        order.add("saved")

    save(), pc.barrier()
    assert order.add("saved", 0) == pc.size()


@CHECKS.on(2, 3)
def losses_of_uneven_batches_are_weighed() -> None:
    losses = np.arange(3.0 + pc.rank())
    total, n = pc.allreduce([losses.sum(), float(len(losses))])
    assert total / n == np.concatenate(of_all_ranks(losses)).mean()


if torch is not None:
    import torch.distributed as dist

    def model_of(rank: int) -> Any:
        torch.manual_seed(rank)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    def flat(model: Any) -> np.ndarray:
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()

    def train(model: Any, steps: int, after: Callable[[int], Any] = lambda step: None) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
            after(step)

    @CHECKS.on(2, 3)
    def parameters_are_averaged_every_few_steps() -> None:
        model, every = model_of(pc.rank()), 3

        def after(step: int) -> None:
            if step % every == every - 1:
                pc.allreduce(list(model.parameters()), "avg")

        train(model, 6, after)
        np.testing.assert_array_equal(flat(model), pc.broadcast(flat(model).copy()))

    @CHECKS.on(2, 3)
    def a_model_is_that_of_rank_0() -> None:
        model = model_of(pc.rank())
        pc.broadcast(model.state_dict())
        np.testing.assert_array_equal(flat(model), flat(model_of(0)))

    @CHECKS.on(2, 3)
    def gradients_of_a_list_are_averaged() -> None:
        params = list(model_of(0).parameters())
        for p in params:
            p.grad = torch.full_like(p, 2.0 * pc.rank())
        pc.allreduce([p.grad for p in params], "avg")
        assert all((p.grad == pc.size() - 1).all() for p in params)

    @CHECKS.on(2, 3)
    def parameters_are_made_equal_again_every_few_steps() -> None:
        model = model_of(pc.rank())
        pc.broadcast(list(model.parameters()))
        np.testing.assert_array_equal(flat(model), pc.broadcast(flat(model).copy()))

    @CHECKS.on(2)
    def passes_of_one_step_are_accumulated() -> None:
        model, k = pc.torch.DataParallel(model_of(0)), 3
        batches = [torch.randn(5, 3) for _ in range(k)]
        for step, x in enumerate(batches):
            if step < k - 1:
                with model.no_sync():
                    (model(x).mean() / k).backward()
            else:
                (model(x).mean() / k).backward()
        alone = model_of(0)
        for every in pc.allgather_object(batches):
            for x in every:
                (alone(x).mean() / k / pc.size()).backward()
        for mine, expected in zip(model.parameters(), alone.parameters(), strict=True):
            np.testing.assert_allclose(mine.grad.numpy(), expected.grad.numpy(), rtol=1e-4, atol=1e-6)

    @CHECKS.on(2)
    def the_buckets_of_a_backward_are_in_the_record_with_their_times() -> None:
        model = pc.torch.DataParallel(model_of(0))
        model(torch.randn(5, 3)).sum().backward()
        calls = [call for call in pc.debug.dump()["calls"] if call["collective"] == "allreduce"]
        assert sum(call["count"] or 0 for call in calls if call["group"] != 0) >= flat(model).size
        assert all(call["elapsed_s"] >= 0 and call["result"] == "ok" for call in calls)

    def join_torch() -> None:
        """Initializes torch.distributed on this world."""
        folder = pc.broadcast_object(tempfile.mkdtemp())
        place = {"rank": pc.rank(), "world_size": pc.size()}
        dist.init_process_group("pycollective", init_method=f"file://{folder}/store", **place)

    @CHECKS.on(2)
    def torchs_averagers_and_local_sgd_run_on_our_backend() -> None:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer

        join_torch()
        model = model_of(pc.rank())
        optimizer = PostLocalSGDOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(period=2, warmup_steps=0)
        )
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
            others = pc.allgather_object(flat(model))
            assert all(np.array_equal(others[0], each) for each in others) == (step % 2 == 0)
        dist.destroy_process_group()

    @CHECKS.on(2)
    def ddp_on_our_backend_has_torchs_own_figures() -> None:
        join_torch()
        ddp = torch.nn.parallel.DistributedDataParallel(model_of(0))
        ddp(torch.randn(5, 3)).sum().backward()
        assert ddp._get_ddp_logging_data()["backend_name"] == "pycollective"
        dist.destroy_process_group()

    @CHECKS.on(2)
    def torchs_stores_work_beside_ours() -> None:
        folder = pc.broadcast_object(tempfile.mkdtemp())
        s = dist.FileStore(str(Path(folder) / "store"), pc.size())
        s.compare_set("k", "", str(pc.rank()))
        pc.barrier()
        assert s.check(["k"])
        assert s.get("k") in (b"0", b"1")


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)
