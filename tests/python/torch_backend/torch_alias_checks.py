"""What every rank does in test_torch_backend: calls with input and output lists in one tensor.

torch_backend_checks.py runs these, too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch_backend_checking import check, here

Parts = list[torch.Tensor]
Read = Callable[[torch.Tensor], torch.Tensor]  # the call's view of a tensor that it reads


def at(root: int, parts: Parts) -> Parts | None:
    return parts if dist.get_rank() == root else None


CALLS: dict[str, Callable[[Parts, torch.Tensor, Read, dist.ProcessGroup], object]] = {
    "all_gather": lambda parts, x, read, group: dist.all_gather([*parts], read(x), group),
    "reduce_scatter": lambda parts, x, read, group: dist.reduce_scatter(x, [*map(read, parts)], group=group),
    "scatter": lambda parts, x, read, group: dist.scatter(x, at(1, [*map(read, parts)]), 1, group),
    "gather": lambda parts, x, read, group: dist.gather(read(x), at(0, parts), 0, group),
    "all_to_all": lambda parts, x, read, group: dist.all_to_all([*parts], [*map(read, parts)], group),
}


def chunks(background: bool = False) -> Parts:
    """Parts of one tensor, different on each rank."""
    rank, size = here()
    return list((torch.arange(3.0 * size) + 100 * rank + background).chunk(size))


@check
def lists_give_what_gloo_makes_of_copies_whichever_of_their_chunks_the_other_side_is() -> None:
    size = here()[1]
    gloo = dist.new_group(backend="gloo")
    wrong = []
    for name, call in CALLS.items():
        for place in range(size):
            wanted, got = chunks(), chunks()
            call(wanted, wanted[place], torch.clone, gloo)
            call(got, got[place], lambda x: x, dist.group.WORLD)
            if not torch.equal(torch.cat(got), torch.cat(wanted)):
                wrong.append(f"{name} with chunk {place}: {got}, and gloo {wanted}")
    assert not wrong, "\n".join(wrong)


@check
def calls_on_one_tensor_read_its_values_from_before_they_began() -> None:
    rank, size = here()
    for background in (False, True):
        for place in range(size):
            parts = chunks(background)
            whole = torch.cat(parts)
            mine = whole.chunk(size)[place]
            work = dist.all_gather_into_tensor(whole, mine, async_op=background)
            assert work is None or work.wait()
            first = torch.arange(3.0) + 3 * place + background
            assert torch.equal(whole, torch.cat([first + 100 * each for each in range(size)]))
            whole = torch.cat(parts)
            work = dist.all_to_all_single(whole, whole, async_op=background)
            assert work is None or work.wait()
            own = torch.arange(3.0) + 3 * rank + background
            assert torch.equal(whole, torch.cat([own + 100 * each for each in range(size)]))
