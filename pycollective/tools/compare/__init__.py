"""`pycollective bench --compare`: this library beside its peers, in one run on one machine.

What runs inside a rank (rank, cells, peer, adapters) uses the standard library and NumPy alone: a peer's interpreter
may have neither pycollective nor anything else.
"""
