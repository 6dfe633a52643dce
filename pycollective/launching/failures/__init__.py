"""How ranks end: which one failed first, of what, and what the others and the user hear of it."""
