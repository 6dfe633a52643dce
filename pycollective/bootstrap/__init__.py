"""Determines this process's rank and the address of rank 0's store from a launcher or the user."""
