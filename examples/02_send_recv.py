"""A token passes once around the ring of ranks.   pycollective run -n 4 examples/02_send_recv.py"""

import numpy as np

import pycollective as pc

pc.init()
token = np.zeros(1, np.int64)
if pc.size() > 1:
    if pc.rank() > 0:
        pc.recv(token, pc.rank() - 1)
    token += pc.rank()
    pc.send(token, (pc.rank() + 1) % pc.size())
    if pc.rank() == 0:
        pc.recv(token, pc.size() - 1)
if pc.rank() == 0:
    print(f"the token has seen {pc.size()} ranks and adds up to {token[0]}")
pc.shutdown()
