"""What is called otherwise elsewhere: names of torch, Horovod, MegEngine, Paddle, Jittor, MPI and torchrun, and ours.

The errors for a name, an argument or an option that does not exist say from these tables what to write here;
docs/coming-from.md has the same tables at its end, and a test compares them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

from pycollective.advice import advised

__all__ = [
    "ARGUMENTS",
    "NAMES",
    "OPTIONS",
    "advise",
    "advised",
    "markdown",
    "missing",
    "of_argument",
    "of_option",
]

# Functions and classes. On the left several may share a line.
NAMES: dict[str, str] = {
    "get_rank world_rank process_index": "pc.rank()",
    "get_world_size world_size process_count num_ranks": "pc.size()",
    "get_node_local_rank get_local_rank get_local_device_id LOCAL_RANK": "pc.local_rank()",
    "get_local_world_size": "pc.local_size()",
    "init_process_group init_parallel_env init_distributed initialize": "pc.init()",
    "destroy_process_group finalize Finalize": "pc.shutdown()",
    "is_available is_nccl_available is_gloo_available is_mpi_available is_torchelastic_launched nccl_built mpi_enabled "
    "gloo_enabled": "pc.available(), or `pycollective doctor`",
    "get_backend": "pc.info().transport",
    "is_distributed in_mpi": "pc.in_world()",
    "WORLD COMM_WORLD get_group get_default_group ProcessSet global_process_set": "pc.world()",
    "new_group add_process_set Group_incl": "pc.group([0, 2])",
    "new_subgroups new_subgroups_by_enumeration split_group Split Comm_split": "pc.world().split(color)",
    "DeviceMesh init_device_mesh ProcessMesh": 'pc.Mesh((2, -1), ("dp", "tp"))',
    "ReduceOp ReduceOptions Sum Average Adasum Min Max Product SUM MAX MIN PROD": 'a text: pc.allreduce(x, "sum"), '
    '"prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor"',
    "all_reduce all_reduce_ allreduce_ Allreduce all_reduce_sum all_reduce_max all_reduce_min mpi_all_reduce "
    "all_reduce_coalesced grouped_allreduce grouped_allreduce_": "pc.allreduce(x), which also takes a list of arrays",
    "all_reduce_async allreduce_async_ Iallreduce": "pc.allreduce_async(x)",
    "all_gather all_gather_into_tensor Allgather Allgatherv all_gather_v grouped_allgather": "pc.allgather(x), uneven: "
    'pc.allgather(x, counts="auto")',
    "reduce_scatter_tensor reduce_scatter_sum Reduce_scatter reducescatter grouped_reducescatter": (
        "pc.reduce_scatter(x)"
    ),
    "all_to_all all_to_all_single alltoall_single Alltoall Alltoallv": "pc.alltoall(x)",
    "broadcast_ bcast Bcast mpi_broadcast bcast_list_": "pc.broadcast(x), which also takes a list of arrays",
    "Reduce reduce_sum mpi_reduce": "pc.reduce(x)",
    "Gather Gatherv": "pc.gather(x)",
    "Scatter Scatterv": "pc.scatter(x)",
    "isend Isend Send remote_send": "pc.send_async(x, 1), or pc.send(x, 1)",
    "irecv Irecv Recv remote_recv": "pc.recv_async(x, 0), or pc.recv(x, 0)",
    "P2POp batch_isend_irecv": "pc.send_async(x, 1) and pc.recv_async(y, 0), then wait() for each",
    "Sendrecv send_recv": "pc.sendrecv(x, 1, 0)",
    "Barrier group_barrier monitored_barrier": "pc.barrier(timeout=60), which names who is missing",
    "all_gather_object": "pc.allgather_object(x)",
    "broadcast_object_list bcast_val bcast_object": "pc.broadcast_object(x)",
    "scatter_object_list": "pc.scatter_object(xs)",
    "send_object_list": "pc.send_object(x, 1)",
    "recv_object_list": "pc.recv_object(0)",
    "synchronize poll wait Wait Request": "wait() or done() of what pc.allreduce_async(x) returns",
    "group_start group_end": "with pc.coalesce() as calls:",
    "TCPStore FileStore HashStore PrefixStore Server Client get_client KVStore": "pc.store()",
    "spawn start_processes launcher": "pc.run(main, n=4), or @pc.launch(n=4)",
    "DistributedDataParallel DDP": "pc.torch.DataParallel(model)",
    "broadcast_parameters broadcast_optimizer_state broadcast_variables broadcast_global_variables mpi_param_broadcast "
    "sync_params_buffers": "pc.broadcast(model.state_dict()), which DataParallel and DistributedOptimizer do by "
    "themselves",
    "DistributedGradientTape make_allreduce_cb AllreduceCallback allreduce_gradients fused_allreduce_gradients "
    "apply_collective_grads": 'pc.GradientReducer(parameters), or pc.allreduce(gradients, "avg")',
    "Compression": 'compression="f16" or "bf16"',
    "DistributedSampler ElasticSampler": "pc.data.Sampler(len(dataset))",
    "DistributedBatchSampler": "pc.data.BatchSampler(len(dataset), global_batch_size=64)",
    "convert_sync_batchnorm convert_syncbn_model": "pc.torch.SyncBatchNorm.convert(model)",
    "init_rpc rpc_sync rpc_async remote": "with pc.serving(function): and pc.call(function, rank=0)",
    "set_global_seed set_seed manual_seed": "pc.seed(7)",
    "single_process_scope": "@pc.single_process",
    "join Join": "with pc.torch.join(model): around the loop",
    "save": "pc.checkpoint.save(state, path)",
    "load": "pc.checkpoint.load(path)",
    "nccl gloo mpi": 'pc.init(backend="auto"), "tcp", "shm" or "nccl"',
}

# Keyword arguments.
ARGUMENTS: dict[str, str] = {
    "device_ids output_device device_id": "leave it out: a rank has one device, pc.device(), and the model stays where "
    "it is",
    "find_unused_parameters static_graph": "leave it out: parameters that a backward does not use need no flag",
    "gradient_as_bucket_view": "leave it out: gradients are views of buckets where they can be",
    "process_group pg comm process_set": "group=",
    "group": "the call as a method of the group: g.allreduce(x)",
    "bucket_cap_mb comm_buffer_size": "bucket_nbytes=25 << 20",
    "last_comm_buffer_size": "first_bucket_nbytes=1 << 20",
    "strategy": "leave it out",
    "drop_last": 'uneven="drop", "pad" or "exact"',
    "backend": 'pc.init(backend="tcp"): a world has one for all its groups and calls',
    "device": "leave it out: arrays are made where the framework makes them, on pc.device()",
    "mesh_shape": "the first argument",
    "mesh_dim_names": "names=",
    "num_replicas nranks": "group=, default the world: the sampler asks it for its size",
    "batch_size": "global_batch_size=64, of all ranks together, or batch_size_per_rank=16",
    "async_op sync_op blocking use_calc_stream": "the call of its own that ends in _async, as pc.allreduce_async(x)",
    "n_gpus nprocs np num_proc num_processes n_procs nproc_per_node ranks": "n=",
    "master_ip master_addr master_address host": 'master="host:port"; of init() the first argument, "host:port"',
    "port master_port": 'the port behind the host, master="host:port"; of init() "host:port"',
    "world_size num_processes_total": "size=, or n=",
    "init_method coordinator_address url": 'the first argument: pc.init("host:port", rank=0, size=2)',
    "process_id local_rank": "rank=; pc.local_rank() is found by itself",
    "store": "leave it out: the ranks have pc.store()",
    "src dst root_rank src_rank dst_rank": "root=; of send and recv the second argument, the peer",
    "dest source": "the second argument, the peer",
    "tensor tensor_list sendbuf recvbuf inp input array object_list": "the first argument, by position; out= is where "
    "the result goes",
    "output output_tensor output_tensor_list gather_list": "out=",
    "scatter_list input_list input_tensor_list": "one array that is cut, or the call that ends in _object",
    "input_split_sizes sendcounts in_split_sizes splits": "counts=",
    "output_split_sizes recvcounts out_split_sizes": "recv_counts=",
    "reduce_op reduction_op reduce_method average": 'op="sum" or "avg"',
    "prescale_factor postscale_factor": 'op=pc.scaled("sum", factor)',
    "name": "leave it out: calls are told from each other by their order",
    "dim": "axis=",
    "gradient_predivide_factor": 'op=pc.scaled("sum", factor)',
    "timeout_s wait_timeout timeout_ms": "timeout=, in seconds",
    "join daemon start_method": "leave it out: run() waits, and starts fresh processes",
    "map_location weights_only": "read=functools.partial(torch.load, ...)",
    "local_size": "leave it out: it is found by itself",
}

# Options of launchers.
OPTIONS: dict[str, str] = {
    "--nproc-per-node --nproc_per_node --num-proc --num_proc --n --np --nproc --ntasks --num_processes "
    "--num-processes --nprocs -c": "-n 4",
    "--gpu --devices --gpu-ids --gpu_ids --xpus --num_gpus --num-gpus": "--gpus 0,1",
    "--node_rank --machine_rank --machine-rank --rank --rank-start": "--node-rank 0",
    "--nnode --num_machines --num-machines --num_nodes --num-nodes --nodes": "--nnodes 2",
    "--master-addr --master_addr --master-ip --master_ip --main_process_ip --rdzv-endpoint --rdzv_endpoint --ips "
    "--master-port --master_port --main_process_port --start_port --port": "--master HOST:PORT",
    "--rdzv-backend --rdzv_backend --rdzv-id --rdzv_id --rdzv-conf --rdzv_conf --standalone --job_id "
    "--monitor-interval": (
        "nothing: ranks of one machine meet by themselves, those of several by --nnodes, --node-rank and --master"
    ),
    "--max_restarts --max_restart --max-restart": "--max-restarts 3",
    "--log_dir --redirects -r --tee -t --output-filename": "--log-dir FOLDER",
    "--no-python --no_python": "nothing: a program that does not end in .py is run as it is",
    "--use-env --use_env": "nothing: LOCAL_RANK is always set",
    "--local_rank --local-rank": "--local-rank-arg, for scripts that take --local_rank",
    "-H --hosts --hostfile --host --machinefile --hosts-file": "one launcher on each machine, with --nnodes, "
    "--node-rank and --master; or mpirun itself, which starts ranks of ours too",
    "--run-path --run_path --start-method --start_method --role --allow-run-as-root --oversubscribe --bind-to "
    "--map-by --mca --network-interface --tag-output -x -genv --elastic_level --elastic-level --min-np --max-np": (
        "nothing: leave it out"
    ),
}

BARE_NAMES = re.compile(r"\w+=(, or \w+=)*")
BARE = re.compile(
    r"\S*\(\) got (?:an unexpected keyword argument '(\w+)'|multiple values for argument '(group)')"
)


def _one_by_one(table: dict[str, str]) -> dict[str, str]:
    return {word: here for words, here in table.items() for word in words.split()}


@functools.cache
def _names() -> dict[str, str]:
    return _one_by_one(NAMES)


@functools.cache
def _arguments() -> dict[str, str]:
    return _one_by_one(ARGUMENTS)


@functools.cache
def _options() -> dict[str, str]:
    return _one_by_one(OPTIONS)


def _near(word: str, known: Iterable[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word, [each for each in known if not each.startswith("_")], 1)
    return f"did you mean {found[0]}?" if found else ""


def missing(module: str, name: str, there: Iterable[str] = ()) -> AttributeError:
    """The error for an attribute that a module has not got. `there`: those that it has."""
    here = "" if name.startswith("__") else _names().get(name, "")
    advice = f"write {here}" if here else _near(name, there)
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(f"{text}: {advice}" if advice else text, name=name)


def of_argument(name: str, known: Iterable[str] = ()) -> str:
    """What to write for a keyword argument that a call does not take, or an empty text."""
    own = {each.strip("=") for each in known}
    near = _near(name, own)
    here = _arguments().get(name, "")
    if own and BARE_NAMES.fullmatch(here):
        names = re.findall(r"\w+(?==)", here)
        fitting = [f"{each}=" for each in names if each in own]
        here = " or ".join(fitting) or _arguments().get(names[0], "")
    if here.startswith("leave it out") or not here:
        return here or near
    return f"write {here}"


def of_option(word: str, known: Iterable[str] = ()) -> str:
    """What to write for an option that `pycollective run` does not take, or an empty text."""
    option = word.partition("=")[0]
    here = _options().get(option, "")
    if here.startswith("nothing: "):
        return f"{option}: {here.removeprefix('nothing: ')}"
    return f"for {option} write {here}" if here else _near(option, known)


def advise(error: TypeError, function: Callable[..., object]) -> None:
    """Adds to the error of a call for an argument that the function does not take what to write."""
    import inspect

    if (found := BARE.match(str(error))) is None:
        return
    parameters = [*inspect.signature(function).parameters.values()]
    by_place, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    own = {each.name for each in parameters if each.kind in (by_place, by_name)} - {"self", "cls"}
    if [(each.name, each.kind) for each in parameters[:1]] == [("group", by_place)]:
        own.discard("group")  # the call is a method of that, too
    if advice := of_argument(found[1] or found[2], own):
        error.args = (f"{found[0]}: {advice}",)


def markdown() -> str:
    """The tables, as they stand in docs/coming-from.md."""
    lines = ["| There | Here |", "|---|---|"]
    for table, suffix in ((NAMES, ""), (ARGUMENTS, "="), (OPTIONS, "")):
        for words, here in table.items():
            there = " ".join(f"`{word}{suffix}`" for word in words.split())
            lines.append(f"| {there} | {here.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"
