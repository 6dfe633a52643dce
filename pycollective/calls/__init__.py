"""Calls of the core that need Python: packing of arrays, lists, messages, awaiting."""
