"""Utilities without dependencies on other folders: clocks, argument checks, advice in errors."""
