"""Every rank contributes a vector and gets the sum.   pycollective run -n 4 examples/01_hello.py"""

import numpy as np

import pycollective as pc

pc.init()
x = np.full(3, pc.rank() + 1.0)
pc.allreduce(x)
print(f"rank {pc.rank()} of {pc.size()}: {x}")
pc.shutdown()
