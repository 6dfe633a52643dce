"""Calls of the core that need Python: packed arrays, lists, messages of unknown shape, awaiting."""
