"""The backend of torch.distributed: its process group, its Works, and how they join, stream and end."""
