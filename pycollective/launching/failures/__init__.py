"""How ranks ended: which rank failed first, why, and what the kernel reports about memory."""
