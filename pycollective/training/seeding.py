"""Seeds of random numbers: a different stream on every rank, or the same stream on all ranks."""

from __future__ import annotations

import operator
import random
import secrets
import sys

import numpy as np

from pycollective import _core
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.runtime import lifetime

__all__ = ["seed"]

OF_A_RANK = 1 << 62  # smallest seed that seed() derives; users hardly choose such a number
END = 1 << 63


@advised
def seed(base: int | None = None, *, per_rank: bool = True, worker: int | None = None) -> int:
    """Seeds the global generators of this process, and returns the seed.

        pc.seed(7, per_rank=False)     # the same everywhere: initial parameters
        model = make_model()
        pc.seed(7)                     # another stream on every rank: augmentation, dropout

    It seeds Python's `random`, NumPy's `np.random` and, if the program has imported torch or
    Paddle, their generators on all devices (torch does not initialize CUDA for that). Pass the
    result to your own generators: `np.random.default_rng(seed)`, `jax.random.key(seed)`.

    Seeds of ranks come from NumPy's SeedSequence(base, spawn_key=(rank,)). Its streams are
    independent, unlike those of base + rank for bases close to each other. They depend only on base
    and rank, not on the number of ranks.

    Parameters:
        base: an int from 0, below 2**63, the same on all ranks. With None rank 0 draws one for all
            ranks, and all must call.
        per_rank: if False, every generator is seeded with base itself, as `torch.manual_seed(base)`
            does.
        worker: the number of a data loader's worker, if this is called in its process. A worker has
            no rank: base is the value that seed() returned on its rank.

    Returns:
        the seed. With per_rank or worker it is from 2**62, below 2**63.

    Raises:
        NotInitialized: there is no world, and seeds differ by rank or rank 0 draws the base.
        InvalidArgument: base or worker is invalid; or base is not a rank's seed, so that the
            workers of all ranks would have the same streams.
        As broadcast_object(), if base is None.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> mine = pc.seed(7)
        >>> def begin(worker):  # DataLoader(..., worker_init_fn=begin)
        ...     pc.seed(mine, worker=worker)
        >>> mine == pc.seed(7)
        True
        >>> pc.shutdown()
    """
    if base is not None and not 0 <= (base := operator.index(base)) < END:
        raise InvalidArgument(f"seed: base={base} is not from 0, below 2**63")
    if worker is not None:
        return _seeded(_derived(_of_a_rank(base), _number_of(worker)))
    if base is None:
        base = int(_core.world().broadcast_object(secrets.randbits(32)))
    return _seeded(_derived(base, lifetime.rank()) if per_rank else base)


def _of_a_rank(base: int | None) -> int:
    if base is None or base < OF_A_RANK:
        raise InvalidArgument(
            f"seed: base={base} is no seed of a rank, so the workers of all ranks would draw the same numbers. On the "
            "rank: mine = pc.seed(7); in its worker: pc.seed(mine, worker=worker)"
        )
    return base


def _number_of(worker: int) -> int:
    if (worker := operator.index(worker)) < 0:
        raise InvalidArgument(f"seed: worker={worker} is no number of a worker: they count from 0")
    return worker


def _derived(base: int, branch: int) -> int:
    words = np.random.SeedSequence(base, spawn_key=(branch,)).generate_state(1, np.uint64)
    return OF_A_RANK + int(words[0]) % OF_A_RANK


def _seeded(seed: int) -> int:
    random.seed(seed)
    # NumPy's seeds have 32 bits, so a larger seed becomes several words. These are not the words of
    # `seed` itself: with them NumPy would draw the same numbers as Python, which has the same
    # generator.
    np.random.seed(seed if seed < 1 << 32 else np.random.SeedSequence(seed).generate_state(8))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
    if (paddle := sys.modules.get("paddle")) is not None:
        paddle.seed(seed)
    return seed
