"""Keeps the copies of a module on all ranks equal: backward averages their gradients."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from pycollective._core import Group
from pycollective.arrays.overlaps import Layout, overlap_in
from pycollective.base.advice import advised, elsewhere
from pycollective.calls.blocks import writable_for
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.torch.buffers import Buffers
from pycollective.torch.foreign_models import check_of_torch
from pycollective.torch.gradient_hooks import FORWARD, GradientHooks
from pycollective.torch.groups import group_of
from pycollective.torch.uneven_inputs import Joined, join

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["DataParallel"]


@elsewhere("scale_loss", "apply_collective_grads")
class DataParallel(nn.Module):
    """Trains one model on all ranks of a group, each with its own part of every batch.

        model = pc.torch.DataParallel(model)
        for inputs, targets in loader:                      # this rank's part
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()  # returns with averaged gradients
            optimizer.step()

    The constructor broadcasts the parameters and buffers of rank 0 to all ranks. After that every
    backward averages the gradients over the ranks, in buckets that are sent while backward
    continues to compute. (Li et al., PyTorch Distributed, VLDB 2020.)

    Parameters:
        module: the model, equal in structure on all ranks. It stays usable itself, as
            `.module`.
        group: the ranks that take part: a Group or a process group of our torch backend. The
            default is the world. Ranks outside a subgroup hold None for it, and None means the
            world, so they must not call this.
        bucket_nbytes, first_bucket_nbytes, compression, timeout: see GradientReducer.
        broadcast_buffers: whether each forward in training mode, outside of no_sync(),
            broadcasts rank 0's buffers (such as running means). A module may run forward twice
            before backward. If its graph holds a buffer, other than running statistics, that
            each rank has changed differently, backward raises an error: pass False for such a
            module.
        ignore: names of parameters and buffers that stay local to each rank, such as a mask or
            a cache. They are neither broadcast nor reduced.

    What to know:
        The gradient of a step is the mean over ranks, regardless of the number of samples on
        each rank. With batches of different sizes, scale the loss by `samples here * size /
        samples everywhere`. All ranks run the same number of backwards. A rank without data
        runs an empty batch, or all ranks train in a block of join(). If the loss uses no
        parameter at all, call synchronize() instead of backward().

        A parameter that a backward does not use counts as zeros. A parameter that no rank has
        used keeps `grad is None`, so that weight decay and momentum do not change it.

        Gradients may be views of buckets: the next backward overwrites them, unless it
        accumulates. Several backwards may follow each other in one step: averaging a
        gradient that is already averaged does not change it.

        state_dict() and load_state_dict() are those of `module`: their keys have no prefix,
        also if the DataParallel is part of another module. Copying and pickling are refused:
        copy `.module`.

        For nn.Embedding(sparse=True) the indices and values of all ranks are gathered. Use
        use_reentrant=False for checkpoints: with True each checkpoint may reduce all gradients
        once more, and a parameter that is used in two of them is refused.

        A rank that survives an exception in a step calls reset(). Your own post-accumulate
        hooks see the gradient of this rank or already the averaged one. close() ends the
        averaging, so that `module` can be wrapped again.

    Raises:
        InvalidArgument: no parameter requires grad, a parameter or buffer is not writable or
            two of them share memory, or gradients of `module` are already being reduced. From
            forward() and backward(): a parameter requires grad that did not require it, or did
            not exist, when the module was wrapped.
        CollectiveMismatch: the modules of the ranks differ. All ranks raise it, with the first
            parameter that differs.
        From backward(): as GradientReducer.finish(), so PeerFailure soon after a rank has died;
            Unsupported for create_graph=True; InvalidArgument if one parameter got two
            gradients in one backward.

    Example:
        >>> import pycollective as pc, torch
        >>> _ = pc.init()
        >>> model = pc.torch.DataParallel(torch.nn.Linear(2, 1))
        >>> model(torch.ones(3, 2)).sum().backward()
        >>> model.module.weight.grad
        tensor([[3., 3.]])
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        module: nn.Module,
        *,
        group: Group | ProcessGroup | None = None,
        bucket_nbytes: int = 25 << 20,
        first_bucket_nbytes: int = 1 << 20,
        compression: Literal["bf16", "f16"] | None = None,
        broadcast_buffers: bool = True,
        ignore: Collection[str] = (),
        timeout: float | None = None,
    ) -> None:
        check_of_torch("DataParallel", module, nn.Module)
        super().__init__()
        if isinstance(ignore, str):
            raise InvalidArgument(f"DataParallel: ignore is a list of names: [{ignore!r}]")
        parameters, buffers = _shared(module, frozenset(ignore))
        if not any(parameter.requires_grad for parameter in parameters.values()):
            raise InvalidArgument("DataParallel: no parameter requires grad, so there is nothing to train")
        _check_apart({**parameters, **buffers})
        self.module = module
        self._parameters_of_all = list(parameters.values())
        self._group = group_of(group)
        self._timeout = timeout
        self._hooks = GradientHooks(
            parameters.items(),
            op="avg",
            group=self._group,
            bucket_nbytes=bucket_nbytes,
            first_bucket_nbytes=first_bucket_nbytes,
            compression=compression,
            timeout=timeout,
            sparse=_sparse_names(module),
        )
        self._shared_buffers = Buffers(module, {id(each) for each in buffers.values()})
        self._broadcast([*self._parameters_of_all, *self._shared_buffers.tensors()])
        if not broadcast_buffers:
            self._shared_buffers.clear()
        self._forwards = 0  # number of forwards that have broadcast buffers
        self._wrapped = {id(parameter) for parameter in module.parameters()}
        self._remember_structure()
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401  whatever the module takes
        """Runs the module."""
        if self.training and torch.is_grad_enabled():
            self._prepare()
        return self.module(*inputs, **named)

    def no_sync(self) -> AbstractContextManager[None]:
        """Inside this block, backward only accumulates gradients.

        The first backward after the block reduces all of them. All ranks must use no_sync() for the
        same backwards.
        """
        return self._hooks.no_sync()

    def synchronize(self) -> None:
        """Averages the current gradients as backward does, for a step without a backward."""
        self._hooks.step()

    def join(self) -> AbstractContextManager[None]:
        """Returns a context for different numbers of batches: see pycollective.torch.join."""
        return join(self)

    def register_comm_hook(self, state: object, hook: object) -> NoReturn:
        """Raises Unsupported, with the replacement for torch's communication hooks."""
        raise Unsupported(
            "DataParallel takes no communication hooks: leave it out, and for those that compress write "
            'pc.torch.DataParallel(model, compression="f16") or "bf16". torch\'s own DistributedDataParallel takes '
            'them over our backend, after torch.distributed.init_process_group("pycollective")'
        )

    def _joined(self) -> Joined:
        return Joined(
            self._hooks,
            self._replace_buffers,
            lambda: [*self._parameters_of_all, *self._shared_buffers.tensors()],
        )

    def reset(self) -> None:
        """Abandons a step after an exception in forward, loss or backward that this rank survives.

        Every step ends, on every rank, with a backward that returns, with synchronize() or with
        reset(). On the other ranks backward raises CollectiveMismatch, which reports the reset, and
        all ranks can continue. This rank waits until the other ranks have reached that backward.
        After an exception in the middle of backward, the next forward or backward resets by itself.
        An exception before the first gradient is not detected, so call reset() then.
        """
        self._hooks.reset()

    def close(self) -> None:
        """Ends the averaging: later backwards reduce nothing. `.module` can be wrapped again."""
        self._hooks.close()

    def state_dict(  # without the positional arguments, which torch has deprecated
        self,
        *,
        destination: Any = None,  # noqa: ANN401  as torch has it
        prefix: str = "",
        keep_vars: bool = False,
    ) -> Any:  # noqa: ANN401
        """Returns the state of the module."""
        return self.module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:  # noqa: ANN401
        """Loads the state of the module. All ranks must load the same state.

        The state may come from torch's DistributedDataParallel: the prefix "module." is removed if
        every key has it.
        """
        _refuse_assign(assign)
        return self.module.load_state_dict(_of_the_module(state_dict, self.module), strict)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InvalidArgument(
            "DataParallel cannot be copied or pickled, as its ranks cannot: take its .module, or its state_dict()"
        )

    @torch.compiler.disable
    def _prepare(self) -> None:
        self._hooks.check()
        if any(
            len(home) != len(was) or any(map(is_not, home.values(), was)) for home, was in self._structure
        ):
            self._check_parameters()
        if self._hooks.enabled:
            self._replace_buffers(0 if self._hooks.announce is None else self._hooks.announce(FORWARD))

    def _replace_buffers(self, root: int) -> None:
        give = partial(self._broadcast, root=root)
        self._shared_buffers.replace(give, graphs_wait=self._forwards > self._hooks.backwards)
        self._forwards += 1

    def _broadcast(self, tensors: list[torch.Tensor], *, root: int = 0) -> None:
        if tensors:
            self._group.broadcast([each.detach() for each in tensors], root=root, timeout=self._timeout)

    def _remember_structure(self) -> None:
        homes = [home for each in self.module.modules() for home in (each._parameters, each._modules)]
        self._structure = [(home, tuple(home.values())) for home in homes]

    def _check_parameters(self) -> None:
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and id(parameter) not in self._wrapped:
                raise InvalidArgument(
                    f'DataParallel: "{name}" was put into the module after it was wrapped, so its gradient would not '
                    "be reduced: close() the DataParallel, and wrap the module anew"
                )
        self._remember_structure()


def _shared(
    module: nn.Module, ignore: Collection[str]
) -> tuple[dict[str, nn.Parameter], dict[str, torch.Tensor]]:
    """Returns the parameters and buffers that are not ignored, by name."""
    names: dict[str, torch.Tensor] = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    for name in ignore:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f': did you mean "{near[0]}"?' if near else ""
            raise InvalidArgument(
                f'DataParallel: ignore: the module has no parameter or buffer "{name}"{hint}'
            )
    ignored = {id(names[name]) for name in ignore}  # by id(), because a tensor may have several names
    return (
        {name: each for name, each in module.named_parameters() if id(each) not in ignored},
        {name: each for name, each in module.named_buffers() if id(each) not in ignored},
    )


def _check_apart(tensors: dict[str, torch.Tensor]) -> None:
    """Raises on every rank for overlapping tensors, which only receiving ranks would detect."""
    layouts: dict[str, Layout] = {}
    for name, tensor in tensors.items():
        library = writable_for("DataParallel", f'"{name}"', tensor.detach())
        if tensor.numel() and tensor.device.type == "cpu":
            layouts[name] = library.layout(tensor)
    if overlap := overlap_in([*layouts.values()]):
        names = [*layouts]
        raise InvalidArgument(
            f'DataParallel: "{names[overlap.one]}" and "{names[overlap.other]}" {overlap.words}, and each would be '
            "written: use one of them in both places, or give one a copy"
        )


def _of_the_module(state_dict: Mapping[str, Any], module: nn.Module) -> Mapping[str, Any]:
    """Removes the prefix "module." of torch's DistributedDataParallel if every key has it."""
    prefix = "module."
    if not state_dict or hasattr(module, "module") or not all(key.startswith(prefix) for key in state_dict):
        return state_dict
    state = OrderedDict(state_dict)
    if hasattr(state_dict, "_metadata"):
        state._metadata = dict(state_dict._metadata)  # type: ignore[attr-defined]
    consume_prefix_in_state_dict_if_present(state, prefix)
    return state


def _refuse_assign(assign: bool) -> None:
    if assign:
        raise Unsupported(
            "DataParallel: assign=True puts other parameters into the module, and their gradients would not be "
            "reduced: load into the module before wrapping it"
        )


def _with_prefix(
    _: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *__: object
) -> None:
    """Adds "module.", which state_dict() omits, to keys that a containing module loads."""
    _refuse_assign(metadata.get("assign_to_params_buffers", False))
    mine = {key: state.pop(key) for key in [*state] if key.startswith(prefix)}
    state.update({f"{prefix}module.{key.removeprefix(prefix)}": value for key, value in mine.items()})


def _sparse_names(module: nn.Module) -> set[str]:
    """Returns the names of all parameters with sparse gradients."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    sparse = {id(each.weight) for each in module.modules() if isinstance(each, kinds) and each.sparse}
    return {name for name, each in module.named_parameters(remove_duplicate=False) if id(each) in sparse}
