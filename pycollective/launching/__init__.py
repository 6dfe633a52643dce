"""Starting ranks, by `pycollective run` or by pc.run(), and watching them until the last one has ended."""
