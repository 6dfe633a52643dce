"""How ranks end: the rank that failed first, the cause, and the reports about it."""
