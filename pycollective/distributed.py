"""Not a module: users of torch.distributed guess its name, and the error has the correct import."""

raise ImportError(
    "there is no pycollective.distributed: write `import pycollective as pc`, then pc.init(), pc.rank(), pc.size(), "
    "pc.allreduce(x) and so on. A script that is to keep its torch.distributed calls does so after "
    'torch.distributed.init_process_group("pycollective"). docs/coming-from.md has every call, and ours',
    name="pycollective.distributed",
)
