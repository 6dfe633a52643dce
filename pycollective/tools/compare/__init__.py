"""`pycollective bench --compare`: this library and its peers, in one run on one machine.

The modules that run inside a rank (rank, cells, adapter, adapters) use only the standard library
and NumPy: the interpreter of a peer library may have neither pycollective nor any other package.
"""
