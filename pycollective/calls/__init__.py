"""Calls of the core that need Python: arrays that do not lie as the core wants them, lists, messages, awaiting."""
