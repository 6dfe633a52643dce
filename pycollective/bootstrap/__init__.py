"""From a launcher's words, or a user's, to rank 0's store: where this process belongs and how it meets the others."""
