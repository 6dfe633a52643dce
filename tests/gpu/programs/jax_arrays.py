"""Arrays of JAX outside of jit: every call gives a new array on the same device.

Calls in the background do so, too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from program_context import DEVICE, cannot_run, proved

import pycollective as pc

try:
    place = jax.devices(DEVICE)[0]
except RuntimeError as error:
    cannot_run(str(error).splitlines()[0])

pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))
for rounds in range(3):
    made = jax.device_put(jnp.ones((64, 64), "float32"), place)
    x = (made @ made) * 0 + rank + rounds  # JAX still computes it
    y = pc.allreduce(x)
    assert isinstance(y, jax.Array)
    assert y.devices() == {place}
    assert bool((y == total + size * rounds).all()), y
    assert bool((x == rank + rounds).all()), "an array of JAX was changed"
    works = [pc.allreduce_async(x + 1), pc.broadcast_async(x, root=size - 1)]
    raised, sent = [work.wait() for work in works]
    assert bool((raised == total + size * (rounds + 1)).all()), raised
    assert bool((sent == size - 1 + rounds).all()), sent
    assert sent.devices() == {place}
    assert works[0].done()
vector = jax.device_put(jnp.arange(3.0) + 10 * rank, place)
assert pc.broadcast(vector, root=0).tolist() == [0.0, 1.0, 2.0]
assert pc.allgather(vector.astype("bfloat16")).dtype == "bfloat16"
gathered = pc.allgather(vector)
assert gathered.tolist() == [10.0 * each + place for each in range(size) for place in range(3)], gathered
pc.shutdown()
proved("allreduce, broadcast, allgather behind JAX's own work, and in the background; x stays as it was")
