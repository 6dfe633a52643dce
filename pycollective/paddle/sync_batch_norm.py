"""Batch normalization over the batches of all ranks, for Paddle.

The algorithm is that of pycollective.torch.SyncBatchNorm. Each rank's count, mean and M2 (the sum
of squared distances from the mean) are merged as in T. F. Chan, G. H. Golub, R. J. LeVeque,
"Algorithms for Computing the Sample Variance", The American Statistician 37 (1983). The exchanged
values are float64: one allgather in forward, one allreduce in backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle
from paddle import nn
from paddle.autograd import PyLayer
from paddle.nn.layer.norm import _BatchNormBase

from pycollective import _core
from pycollective.base.advice import advised, elsewhere
from pycollective.errors import InvalidArgument
from pycollective.paddle.places import refuse_gpus

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = ["SyncBatchNorm"]


@elsewhere("convert_sync_batchnorm")
class SyncBatchNorm(_BatchNormBase):  # type: ignore[misc]
    """nn.BatchNorm1D, 2D or 3D over the concatenated training batches of all ranks of a group.

    Its state_dict is that of nn.BatchNorm. Gradients of weight and bias are those of this rank's
    samples: data parallel training averages them over the ranks. In eval() and in a world of one
    rank it is equivalent to nn.BatchNorm and communicates nothing. It runs on the CPU.

    Parameters:
        num_features, momentum, epsilon, weight_attr, bias_attr, data_format, name: as in
            nn.BatchNorm2D.
        group: the ranks that share their batches. The default is the world at the time of the call.
            Ranks outside a subgroup hold None for it, and None means the world, so they must not
            call this.

    All ranks must call it, even with an empty batch, and all must run its backward. The inputs
    require a gradient on all ranks or on none.

    Raises:
        InvalidArgument: from the call: the input has another number of channels.
        Unsupported: from the call: the input is on a GPU.
        ValueError: from the call, on every rank: there is only one value per channel on all ranks
            together. If there is no value on any rank, the output is empty and the running
            statistics are unchanged, as in nn.BatchNorm.
        CollectiveError: from the call, as pycollective.allgather().

    Example:
        >>> import paddle, pycollective as pc
        >>> _ = pc.init()
        >>> layer = pc.paddle.SyncBatchNorm(2)
        >>> layer(paddle.to_tensor([[1.0, 5.0], [3.0, 9.0]])).round(3).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: Any = None,  # noqa: ANN401  as Paddle has it
        bias_attr: Any = None,  # noqa: ANN401
        data_format: str = "NCHW",
        name: str | None = None,
        *,
        group: Group | None = None,
    ) -> None:
        super().__init__(num_features, momentum, epsilon, weight_attr, bias_attr, data_format, None, name)
        self._group = group

    @classmethod
    @advised
    def convert(cls, layer: nn.Layer, *, group: Group | None = None) -> nn.Layer:
        """Replaces every nn.BatchNorm1D, 2D and 3D in a model, in place, by a SyncBatchNorm.

        Returns:
            `layer`, or its replacement if it is a batch normalization itself. The new layers have
            the parameters and the mode of the old ones. The parameters are the same objects, so an
            optimizer that was made before still works.

        Raises:
            InvalidArgument: `layer` is not a Layer of Paddle.

        Example:
            >>> import paddle, pycollective as pc
            >>> model = paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3))
            >>> type(pc.paddle.SyncBatchNorm.convert(model)[1]).__name__
            'SyncBatchNorm'
        """
        if not isinstance(layer, nn.Layer):
            raise InvalidArgument(
                f"SyncBatchNorm.convert: it takes a Layer of Paddle, not {type(layer).__name__}"
            )
        # by id() of the layer: a layer that is used twice gets one replacement
        replaced: dict[int, SyncBatchNorm] = {}
        for each in layer.sublayers(include_self=True):
            if isinstance(each, (nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D)):
                new = cls.__new__(cls)
                new.__dict__ = {**each.__dict__, "_group": group}
                replaced[id(each)] = new
        for parent in layer.sublayers(include_self=True):
            for name, child in parent._sub_layers.items():
                if id(child) in replaced:
                    parent._sub_layers[name] = replaced[id(child)]
        return replaced.get(id(layer), layer)

    def forward(self, input: Any) -> Any:  # noqa: ANN401
        """Normalizes a batch; see the class."""
        group = _core.world() if self._group is None else self._group
        if not self.training or self._use_global_stats or group.size == 1:
            return nn.functional.batch_norm(
                input,
                self._mean,
                self._variance,
                weight=self.weight,
                bias=self.bias,
                training=self.training,
                momentum=self._momentum,
                epsilon=self._epsilon,
                data_format=self._data_format,
                use_global_stats=self._use_global_stats,
            )
        axis = len(input.shape) - 1 if self._data_format[-1] == "C" and len(input.shape) > 2 else 1
        if len(input.shape) < 2 or input.shape[axis] != self._num_features:
            raise InvalidArgument(
                f"SyncBatchNorm: expected an input with {self._num_features} channels on axis {axis}, got one of shape "
                f"{tuple(input.shape)}"
            )
        refuse_gpus("SyncBatchNorm", {"input": input})
        place = _Place(axis, len(input.shape))
        count, mean, variance = place.statistics(input, group)
        if count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got 1 on all ranks together"
            )
        if count:
            self._track(mean, variance)
        weight = paddle.ones([self._num_features], self._dtype) if self.weight is None else self.weight
        bias = paddle.zeros([self._num_features], self._dtype) if self.bias is None else self.bias
        scale = (variance + self._epsilon).rsqrt()
        return _Normalized.apply(input, weight, bias, mean, scale, max(count, 1.0), place, group)

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def _track(self, mean: Any, variance: Any) -> None:  # noqa: ANN401
        for running, new in ((self._mean, mean), (self._variance, variance)):
            running.set_value(running * self._momentum + new.astype(running.dtype) * (1 - self._momentum))


class _Place:
    """The position of the channel axis in the input."""

    def __init__(self, axis: int, ndim: int) -> None:
        self.others = [each for each in range(ndim) if each != axis]
        self.shape = [-1 if each == axis else 1 for each in range(ndim)]

    def sums(self, x: Any) -> Any:  # noqa: ANN401
        return x.sum(axis=self.others)

    def along(self, values: Any, x: Any) -> Any:  # noqa: ANN401
        """Returns the values, one per channel, in a shape and dtype that broadcast with `x`."""
        return values.astype(x.dtype).reshape(self.shape)

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def statistics(self, x: Any, group: Group) -> tuple[Any, Any, Any]:  # noqa: ANN401
        """Returns the count, means and variances over the batches of all ranks."""
        wide = x.detach().astype("float64")
        channels = wide.shape[self.shape.index(-1)]
        here = wide.size // channels
        mean = self.sums(wide) / max(here, 1)
        m2 = self.sums((wide - self.along(mean, wide)).square())
        moments = paddle.concat([paddle.full([1], here, "float64"), mean, m2]).unsqueeze(0)
        every = group.allgather(moments)
        counts, means, m2s = every[:, :1], every[:, 1 : 1 + channels], every[:, 1 + channels :]
        count = counts.sum()
        mean = (counts * means).sum(0) / count.clip(min=1)
        m2 = (m2s + counts * (means - mean).square()).sum(0)
        return count.item(), mean, m2 / count.clip(min=1)


class _Normalized(PyLayer):  # type: ignore[misc]
    """Normalizes `x`. `count` is the number of values per channel on all ranks, at least 1."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  Paddle's context
        x: Any,  # noqa: ANN401
        weight: Any,  # noqa: ANN401
        bias: Any,  # noqa: ANN401
        mean: Any,  # noqa: ANN401
        scale: Any,  # noqa: ANN401
        count: float,
        place: _Place,
        group: Group,
    ) -> Any:  # noqa: ANN401
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.count, ctx.place, ctx.group = count, place, group
        ctx.wanted = [not each.stop_gradient for each in (x, weight, bias)]
        distance = x - place.along(mean, x)
        return distance * place.along(scale * weight.astype(scale.dtype), x) + place.along(bias, x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:  # noqa: ANN401
        # Paddle requires None for each input that has stop_gradient set, and a gradient for every
        # other input.
        x, weight, mean, scale = ctx.saved_tensor()
        x_wants, weight_wants, bias_wants = ctx.wanted
        place = ctx.place
        distance = x - place.along(mean, x)
        here = paddle.stack([place.sums(gradient), place.sums(gradient * distance)]).astype("float64")
        d_weight = (here[1] * scale).astype(weight.dtype) if weight_wants else None
        d_bias = here[0].astype(weight.dtype) if bias_wants else None
        if not x_wants:  # the input requires no gradient, on any rank
            return None, d_weight, d_bias, None, None
        everywhere = ctx.group.allreduce(here.clone()) / ctx.count
        d_x = gradient - place.along(everywhere[0], x)
        d_x = d_x - distance * place.along(scale.square() * everywhere[1], x)
        d_x = d_x * place.along(scale * weight.astype(scale.dtype), x)
        return d_x, d_weight, d_bias, None, None
