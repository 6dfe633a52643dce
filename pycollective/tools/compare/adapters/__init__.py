"""One module per family of libraries, each with a class `Adapter` (see adapter.py).

The constructor imports the library.
"""
