"""From a launcher's or user's settings to this process's place and the way to rank 0's store."""
