"""Batch normalization over the batches of all ranks.

It makes one allgather in forward and one allreduce in backward. Each rank's count, mean and M2 (the
sum of squared distances from the mean) are merged as in T. F. Chan, G. H. Golub, R. J. LeVeque,
"Algorithms for Computing the Sample Variance", The American Statistician 37 (1983). There is no
cancellation when the mean is large, and ranks may have different numbers of samples, or none. The
exchanged values are float64, in which any count is exact. Elementwise computation uses float32
(float64 for float64).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from pycollective.base.advice import advised, elsewhere
from pycollective.errors import InvalidArgument
from pycollective.torch.foreign_models import check_of_torch
from pycollective.torch.groups import group_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Group

__all__ = ["SyncBatchNorm"]


@elsewhere("convert_sync_batchnorm")
class SyncBatchNorm(_BatchNorm):
    """nn.BatchNorm1d, 2d or 3d over the concatenated training batches of all ranks of a group.

    Its state_dict is that of nn.BatchNorm; copies of it use the same group. Gradients of weight and
    bias are those of this rank's samples: data parallel training adds or averages them over the
    ranks. In eval() and in a world of one rank it is equivalent to nn.BatchNorm and communicates
    nothing. It runs on the CPU. Under torch.compile it breaks the graph.

    Args:
        num_features: channels, the length of axis 1 of the input.
        eps: added to the variance.
        momentum: weight of a new batch in the running statistics; None for the average over all
            batches.
        affine: whether there are a weight and a bias.
        track_running_stats: whether there are running statistics; without them eval()
            normalizes by its own batch.
        group: the ranks that share their batches. The default is the world at the time of the
            call. Ranks outside a subgroup hold None for it, and None means the world, so they
            must not call this.
        device: as in nn.BatchNorm.
        dtype: of weight, bias and running statistics.

    The call takes a tensor of shape (batch, num_features, ...) of any floating dtype, and returns a
    new one of its shape and dtype. All ranks call it, including a rank with an empty batch, and
    all run its backward. The inputs of all ranks require grad, or none does.

    Raises:
        ValueError: from the call: the input has another number of channels, or no floating
            dtype; or there is one value per channel on all ranks together, and then every rank
            raises. If there is no value on any rank, the output is empty and the running
            statistics are unchanged.
        CollectiveError: from the call and from backward: as pycollective.allgather() and
            allreduce().
        RuntimeError: from backward of backward: there are no second derivatives.

    Example:
        >>> import torch, pycollective as pc
        >>> _ = pc.init()
        >>> layer = pc.torch.SyncBatchNorm(2)
        >>> layer(torch.tensor([[1.0, 5.0], [3.0, 9.0]])).detach().round(decimals=3)
        tensor([[-1., -1.],
                [ 1.,  1.]])
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        group: Group | ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.group = group

    @classmethod
    @advised
    def convert(cls, module: nn.Module, *, group: Group | ProcessGroup | None = None) -> nn.Module:
        """Replaces every batch normalization in a model by a SyncBatchNorm.

        Args:
            module: the model. It is changed: nn.BatchNorm1d, 2d, 3d and nn.SyncBatchNorm in it are
                replaced.
            group: the ranks that share their batches. The default is the world. Ranks outside a
                subgroup hold None for it, and None means the world, so they must not call this.

        Returns:
            `module`, or its replacement if it is a batch normalization itself. The new layers have
            the mode of the old ones and the same parameter, buffer and hook objects, so an
            optimizer that was made before still works.

        Raises:
            InvalidArgument: the model, which is unchanged then, has a batch normalization that is a
                subclass of those above, has its own forward, or is lazy and has not seen an input
                yet; or it has an nn.SyncBatchNorm with a process_group, and no `group` is given.

        Example:
            >>> import torch, pycollective as pc
            >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
            >>> pc.torch.SyncBatchNorm.convert(model)
            Sequential(
              (0): Linear(in_features=2, out_features=3, bias=True)
              (1): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
            )
        """
        check_of_torch("SyncBatchNorm.convert", module, nn.Module)
        replaced: dict[nn.Module, SyncBatchNorm] = {}  # a layer that is used twice gets one replacement
        for name, layer in module.named_modules():
            if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm):
                _refuse_if_something_would_be_lost(name, layer, group)
                replaced[layer] = cls._in_place_of(layer, group)
        for parent in list(module.modules()):
            for name, child in parent._modules.items():
                if child in replaced:
                    parent._modules[name] = replaced[child]
        return replaced.get(module, module)

    @classmethod
    def _in_place_of(cls, layer: _BatchNorm, group: Group | ProcessGroup | None) -> SyncBatchNorm:
        new = cls.__new__(cls)
        new.__dict__ = {**layer.__dict__, "group": group}
        new.__dict__.pop("process_group", None)  # an attribute of nn.SyncBatchNorm
        new.__dict__.pop("_compiled_call_impl", None)  # set by layer.compile(); it would call the old layer
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> SyncBatchNorm:
        memo[id(self.group)] = self.group  # the copy uses the same group, because a group cannot be copied
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm: expected an input of shape (batch, {self.num_features}, ...), got {tuple(input.shape)}"
            )
        if not input.is_floating_point():
            raise ValueError(f"SyncBatchNorm: expected an input of a floating dtype, got {input.dtype}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalizes a batch; see the class."""
        group = group_of(self.group) if self.training else None
        if group is None or group.size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        y, count, mean, variance = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps, group)
        if self.track_running_stats:
            self._track(count, mean, variance)
        return cast(Tensor, y)

    def _track(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        if count == 0:  # no running statistics change, as in nn.BatchNorm
            return
        weight = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.lerp_(new.to(running.dtype), weight)


def _refuse_if_something_would_be_lost(
    name: str, layer: _BatchNorm, group: Group | ProcessGroup | None
) -> None:
    kind = type(layer)
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        why = (
            f"is a {kind.__name__} that does not know its number of channels yet: call the model once before"
        )
    elif kind not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
        why = (
            f"is a {kind.__module__}.{kind.__qualname__}, and its own code would be lost: put a subclass of "
            "SyncBatchNorm in its place before"
        )
    elif "forward" in vars(layer):
        why = "has a forward of its own, which would be lost: put a subclass of SyncBatchNorm in its place before"
    elif group is None and getattr(layer, "process_group", None) is not None:
        why = (
            "has a process_group, and without group= it would become the world: say group=, pycollective.world() if "
            "all ranks are meant"
        )
    else:
        return
    which = f"layer {name}" if name else "the layer"
    raise InvalidArgument(f"SyncBatchNorm.convert: {which} {why}")


def _widened(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _sum(x: Tensor) -> Tensor:
    """Returns the sums over all axes except that of the channels."""
    return x.sum([0, *range(2, x.dim())])


def _on_channels(values: Tensor, x: Tensor) -> Tensor:
    """Returns the values, one per channel, in a shape and dtype that broadcast with `x`."""
    return values.to(x.dtype).view(-1, *[1] * (x.dim() - 2))


def _centred(x: Tensor, mean: Tensor) -> Tensor:
    """Returns `x` minus the float64 mean, as a new tensor, without loss of digits.

    First the nearest number in the dtype of `x` is subtracted, which loses no digit, then the rest.
    """
    near = mean.to(x.dtype)
    return (x - _on_channels(near, x)).sub_(_on_channels(mean - near, x))


def _moments(x: Tensor) -> Tensor:
    """Returns the count, means and M2s of a batch in one tensor.

    They are computed by the corrected two-pass algorithm, (1.7) of the paper.
    """
    count = x.numel() // x.shape[1]
    divisor = max(count, 1)
    near = _sum(x) / divisor
    distance = x - _on_channels(near, x)
    off = _sum(distance).double()
    m2 = _sum(distance.square_()).double() - off.square() / divisor
    return torch.cat([off.new_tensor([count]), near + off / divisor, m2.clamp_(min=0)])


def _merged(moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Merges moments, one row per rank, to the count, means and M2s over all ranks."""
    channels = moments.shape[1] // 2
    counts, means, m2s = moments.tensor_split([1, 1 + channels], dim=1)
    count = counts.sum()
    mean = (counts * means).sum(0) / count.clamp(min=1)
    return count, mean, (m2s + counts * (means - mean).square()).sum(0)


class _SyncBatchNorm(torch.autograd.Function):
    """Returns the output, and the count, mean and unbiased variance over all ranks' batches."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  torch's context
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        group: Group,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = _widened(input)
        count, mean, m2 = _merged(group.allgather(_moments(x)[None]))
        if count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got 1 on all ranks together"
            )
        scale = (m2 / count.clamp(min=1) + eps).rsqrt()
        ctx.save_for_backward(input, weight, mean, scale)
        ctx.group, ctx.count, ctx.bias_dtype = group, count, None if bias is None else bias.dtype
        variance = m2 / (count - 1)
        ctx.mark_non_differentiable(count, mean, variance)
        y = _centred(x, mean)
        y.mul_(_on_channels(scale if weight is None else scale * weight, x))
        if bias is not None:
            y.add_(_on_channels(bias, x))
        return y.to(input.dtype), count, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *of_statistics: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        input, weight, mean, scale = ctx.saved_tensors
        g, distance = _widened(gradient), _centred(_widened(input), mean)
        sums = torch.stack([_sum(g), _sum(g * distance)]).double()
        d_weight = (sums[1] * scale).to(weight.dtype) if ctx.needs_input_grad[1] else None
        d_bias = sums[0].to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        if not ctx.needs_input_grad[0]:
            return None, d_weight, d_bias, None, None
        mean_g, mean_g_distance = ctx.group.allreduce(sums, out=torch.empty_like(sums)) / ctx.count.clamp(
            min=1
        )
        d_x = distance.mul_(_on_channels(-scale.square() * mean_g_distance, g))
        d_x.add_(g).sub_(_on_channels(mean_g, g))
        d_x.mul_(_on_channels(scale if weight is None else scale * weight, g))
        return d_x.to(input.dtype), d_weight, d_bias, None, None
