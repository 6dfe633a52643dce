"""Errors for models and optimizers of other frameworks, with advice what to write instead."""

from __future__ import annotations

from pycollective.errors import InvalidArgument

__all__ = ["check_of_torch"]

WITH_PARAMETERS = (
    "give all ranks the parameters of rank 0 once, pc.broadcast(list(model.parameters())), and average the gradients "
    'after every backward, pc.allreduce([each.grad for each in model.parameters()], "avg"); pc.GradientReducer does it '
    "in buckets, in the background"
)
TREES = (
    "give all ranks the parameters of rank 0 once: leaves, tree = jax.tree.flatten(parameters), then "
    "jax.tree.unflatten(tree, pc.broadcast(leaves)); and average the leaves of the gradients in every step in the same "
    'way, by pc.allreduce(leaves, "avg"), or inside jax.jit by pycollective.jax.allreduce'
)
ARRAYS = (
    "take parameters and gradients as lists of NumPy arrays, and set them from the results: pc.broadcast(arrays) once "
    'for those of rank 0, and pc.allreduce(arrays, "avg") in every step'
)
KERAS = (
    "give all ranks the weights of rank 0 once, model.set_weights(pc.broadcast(model.get_weights())), and average the "
    'gradients in a train_step() of your own, as NumPy arrays: pc.allreduce(arrays, "avg")'
)
OTHERS = {
    "paddle": "there is pycollective.paddle.DataParallel, and around an optimizer " + WITH_PARAMETERS,
    **dict.fromkeys(("megengine", "jittor"), WITH_PARAMETERS),
    **dict.fromkeys(("flax", "equinox", "haiku"), TREES),
    **dict.fromkeys(("mindspore", "mlx"), ARRAYS),
    **dict.fromkeys(("keras", "tensorflow"), KERAS),
}


def check_of_torch(call: str, value: object, kind: type) -> None:
    """Raises InvalidArgument if `value` is not a torch `kind`, with advice for its framework."""
    if isinstance(value, kind):
        return
    cls = value if isinstance(value, type) else type(value)
    roots = [each.__module__.partition(".")[0] for each in cls.__mro__]
    framework = next((root for root in roots if root in OTHERS), "")
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    what = f"the class {name}: make one of it" if isinstance(value, type) else name
    instead = f". For {framework} {OTHERS[framework]}" if framework else ""
    raise InvalidArgument(f"{call}: it takes a torch {kind.__name__}, not {what}{instead}")
