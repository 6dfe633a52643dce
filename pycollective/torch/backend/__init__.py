"""The torch.distributed backend: its process group, Works, streams, and how it joins and ends."""
