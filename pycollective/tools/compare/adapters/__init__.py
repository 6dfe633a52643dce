"""One module per family of libraries, each with a class `Adapter` that is a Peer (peer.py).

Their libraries are imported in its constructor.
"""
