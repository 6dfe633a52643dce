"""Models and optimizers of other frameworks, given to a wrapper of torch's: what to write for them instead."""

from __future__ import annotations

from pycollective.errors import InvalidArgument

__all__ = ["check_of_torch"]

WITHOUT_WRAPPER = (
    "give all ranks the parameters of rank 0 once, pc.broadcast(list(model.parameters())), and average the gradients "
    'after every backward, pc.allreduce([each.grad for each in model.parameters()], "avg"); pc.GradientReducer does it '
    "in buckets, in the background"
)
OTHERS = (
    "paddle",
    "megengine",
    "jittor",
    "mindspore",
    "keras",
    "tensorflow",
    "flax",
    "equinox",
    "haiku",
    "mlx",
)


def check_of_torch(call: str, value: object, kind: type) -> None:
    """InvalidArgument: `value` is of another framework, or no such thing at all."""
    if isinstance(value, kind):
        return
    cls = value if isinstance(value, type) else type(value)
    roots = [each.__module__.partition(".")[0] for each in cls.__mro__]
    framework = next((root for root in roots if root in OTHERS), "")
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    what = f"the class {name}: make one of it" if isinstance(value, type) else name
    told = f". For {framework} {WITHOUT_WRAPPER}" if framework else ""
    raise InvalidArgument(f"{call}: it takes a torch {kind.__name__}, not {what}{told}")
