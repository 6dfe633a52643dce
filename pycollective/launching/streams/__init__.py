"""Splits the ranks' output into lines, and writes it to descriptors and log files."""
