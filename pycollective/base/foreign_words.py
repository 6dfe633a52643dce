"""Maps names of other libraries to those of pycollective.

The libraries are torch, Horovod, MegEngine, Paddle, Jittor, MPI and torchrun. Errors for an unknown
name, attribute, argument or option advise what to write by these tables. docs/coming-from.md ends
with the same tables, and a test compares them.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from types import FrameType

__all__ = [
    "ARGUMENTS",
    "ATTRIBUTES",
    "NAMES",
    "OPTIONS",
    "advise",
    "markdown",
    "missing",
    "missing_in",
    "of_argument",
    "of_option",
]

# Functions and classes. A key may list several names.
NAMES: dict[str, str] = {
    "get_rank Get_rank world_rank global_rank comm_rank my_rank process_index": "pc.rank()",
    "get_world_size Get_size world_size process_count num_ranks": "pc.size()",
    "get_node_local_rank get_local_rank get_local_device_id LOCAL_RANK": "pc.local_rank()",
    "get_local_world_size": "pc.local_size()",
    "cross_rank cross_size node_rank": "rank and size of pc.world().split(pc.local_rank()), which has "
    "one rank of each host",
    "init_process_group init_parallel_env init_distributed initialize gloo_init_parallel_env rendezvous": "pc.init()",
    "is_main_process is_local_main_process": "pc.rank() == 0, per host pc.local_rank() == 0",
    "destroy_process_group finalize Finalize gloo_release": "pc.shutdown()",
    "is_nccl_available nccl_built is_backend_available": 'bool(pc.available("nccl"))',
    "cuda_built rocm_built": 'bool(pc.available("cuda"))',
    "is_available": "leave it out: what can be imported can be used. `pycollective doctor` shows what this machine has",
    "is_gloo_available is_mpi_available mpi_built gloo_built ccl_built ddl_built mpi_enabled gloo_enabled "
    "mpi_threads_supported": "leave it out: no MPI, Gloo, oneCCL or DDL is used. `pycollective doctor` shows "
    "what is there",
    "is_torchelastic_launched": "pc.info().launcher, which names the launcher of this process",
    "get_backend": "pc.info().transport",
    "override_backend": 'pc.init(backend="tcp"): a world has one for all its calls',
    "ParallelEnv ParallelMode": "pc.info(), pc.rank(), pc.size()",
    "get_py_server_addr get_mm_server_addr": "pc.info().addresses",
    "is_distributed in_mpi": "pc.in_world()",
    "mpi MPI distributed dist helper": "pc itself: pc.rank(), pc.size(), pc.allreduce(x); nothing is None "
    "in a world of one",
    "get_state set_state COMM_SELF": "pc.group([pc.rank()]), a group of one, with calls that stay here",
    "WORLD COMM_WORLD get_group get_default_group ProcessSet global_process_set": "pc.world()",
    "new_group add_process_set Group_incl": "pc.group([0, 2])",
    "shrink_group": "pc.group([0, 2]) for ranks that live. A world with a dead rank ends: pycollective run "
    "--max-restarts 3 starts all of them again",
    "Dup Comm_dup": "pc.group(pc.world().ranks), with calls separate from the world's",
    "GroupMember": "g is None: pc.group([0, 2]) is None on ranks outside",
    "remove_process_set Free": "close() of the group",
    "ProcessGroup": "pc.Group",
    "new_subgroups new_subgroups_by_enumeration split_group split Split Comm_split": "pc.world().split(color), for "
    "groups; no call splits a layer",
    "get_process_group_ranks": "g.ranks, of a group g",
    "get_group_rank": "g.ranks.index(rank), of a group g",
    "get_global_rank": "g.ranks[rank], of a group g",
    "get_pg_count": "pc.info().groups",
    "DeviceMesh init_device_mesh ProcessMesh get_mesh": 'pc.Mesh((2, -1), ("dp", "tp"))',
    "fleet": 'pc.Mesh((2, -1), ("dp", "tp")) for the topology, and the DataParallel of pc.torch or pc.paddle',
    "ReduceOp ReduceOptions reduce_op Sum Average Adasum Min Max Product SUM MAX MIN PROD": "a text: "
    'pc.allreduce(x, "sum"), "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor"',
    "all_reduce all_reduce_ allreduce_ Allreduce all_reduce_sum all_reduce_max all_reduce_min mpi_all_reduce "
    "nccl_all_reduce "
    "var_all_reduce all_reduce_coalesced grouped_allreduce grouped_allreduce_": "pc.allreduce(x), which also takes a "
    "list of arrays",
    "psum pmean pmax pmin": 'pc.allreduce(x), "avg", "max" or "min"; inside jax.jit pc.jax.allreduce(x)',
    "ppermute": "pc.sendrecv(x, dest, source)",
    "axis_index": "pc.rank(); for an axis of a mesh: mesh.coordinates",
    "IN_PLACE": "pc.allreduce(x) without out=: the result is in x",
    "shard_tensor reshard dtensor_from_local unshard_dtensor": "pc.scatter(x), pc.allgather(x) and pc.alltoall(x): "
    "there is no automatic cut",
    "pack_allreduce_split param_pack_split param_pack_concat get_offsets": "pc.allreduce(params): a list of arrays is "
    "packed by itself",
    "reduce_mean": 'pc.allreduce(x, "avg"), or pc.metrics.mean(x, weight=samples)',
    "all_reduce_async allreduce_async_ Iallreduce grouped_allreduce_async": "pc.allreduce_async(x)",
    "Ibcast Igather Iscatter Iallgather Ialltoall Ireduce Iscan Iexscan Ibarrier allgather_async_ broadcast_async_ "
    "alltoall_async_": "the separate call that ends in _async: pc.allgather_async(x)",
    "all_gather all_gather_into_tensor Allgather Allgatherv all_gather_v allgatherv all_gather_single "
    "all_gather_coalesced mpi_all_gather grouped_allgather": 'pc.allgather(x), uneven: pc.allgather(x, counts="auto")',
    "reduce_scatter_tensor reduce_scatter_single reduce_scatter_sum Reduce_scatter Reduce_scatter_block reducescatter "
    "grouped_reducescatter": "pc.reduce_scatter(x)",
    "all_to_all all_to_all_single alltoall_single Alltoall Alltoallv alltoallv": "pc.alltoall(x)",
    "broadcast_ bcast Bcast mpi_broadcast nccl_broadcast var_broadcast broadcast_coalesced bcast_list_": (
        "pc.broadcast(x), which also takes a list of arrays"
    ),
    "Reduce reduce_sum mpi_reduce nccl_reduce var_reduce": "pc.reduce(x)",
    "Gather Gatherv": "pc.gather(x)",
    "Scatter Scatterv": "pc.scatter(x)",
    "isend Isend Send remote_send": "pc.send_async(x, 1), or pc.send(x, 1)",
    "irecv Irecv Recv remote_recv": "pc.recv_async(x, 0), or pc.recv(x, 0)",
    "Probe Iprobe Mprobe Status": "pc.recv(None, pc.ANY_SOURCE, with_source=True), which returns what arrives and "
    "its sender",
    "ANY_TAG": "pc.recv(x, 0, tag=7): a receive names its tag, by default 0",
    "P2POp batch_isend_irecv": "pc.send_async(x, 1) and pc.recv_async(y, 0), then wait() for each",
    "Sendrecv send_recv": "pc.sendrecv(x, 1, 0)",
    "Barrier group_barrier gloo_barrier mpi_barrier monitored_barrier wait_for_everyone": (
        "pc.barrier(timeout=60), which names the missing ranks"
    ),
    "functional stream communication": "pc.allreduce(x) and so on; those with gradients are in pc.torch.functional "
    "and pc.jax",
    "all_gather_object": "pc.allgather_object(x)",
    "broadcast_object_list bcast_val bcast_object": "pc.broadcast_object(x)",
    "scatter_object_list": "pc.scatter_object(xs)",
    "send_object_list": "pc.send_object(x, 1)",
    "recv_object_list": "pc.recv_object(0)",
    "synchronize poll wait Wait Request TensorFuture": "wait() or done() of what pc.allreduce_async(x) returns",
    "group_start group_end": "with pc.coalesce() as calls:",
    "TCPStore FileStore HashStore PrefixStore Server Client get_client KVStore": "pc.store()",
    "spawn start_processes launcher": "pc.run(main, n=4), or @pc.launch(n=4)",
    "ProcessRaisedException ProcessExitedException": "leave it out: pc.run() raises what the function has raised, "
    "with a pc.RemoteError as its cause, and pc.PeerFailure where a rank was killed",
    "DistError DistBackendError DistNetworkError DistStoreError": "pc.CollectiveError",
    "record": "leave it out: pycollective run shows which rank failed first, with its error",
    "register_comm_hook GradBucket": 'compression="bf16" of pc.torch.DataParallel, or pc.GradientReducer by hand',
    "Abort": "sys.exit(1): the launcher then ends the other ranks",
    "elastic": "pycollective run --max-restarts 3, which starts all ranks again when one has failed",
    "DistributedDataParallel DDP": "pc.torch.DataParallel(model)",
    "DataParallel": "pc.torch.DataParallel(model), or that of pc.paddle",
    "SyncBatchNorm": "pc.torch.SyncBatchNorm.convert(model), or that of pc.paddle",
    "Pipeline": "pc.torch.Pipeline(stage, micro_batches=8)",
    "DistributedOptimizer": "pc.torch.DistributedOptimizer(optimizer)",
    "group_sharded_parallel ZeroRedundancyOptimizer fully_shard FullyShardedDataParallel FSDP": "torch's own "
    'fully_shard after torch.distributed.init_process_group("pycollective"); for any array see docs/coming-from.md',
    "broadcast_parameters broadcast_optimizer_state broadcast_variables broadcast_global_variables mpi_param_broadcast "
    "sync_params_buffers": "pc.broadcast(model.state_dict()), which DataParallel and DistributedOptimizer do by "
    "themselves",
    "DistributedGradientTape Reducer make_allreduce_cb AllreduceCallback allreduce_gradients fused_allreduce_gradients "
    "apply_collective_grads": 'pc.GradientReducer(parameters), or pc.allreduce(gradients, "avg")',
    "Compression": 'compression="f16" or "bf16"',
    "Sampler DistributedSampler ElasticSampler SequentialSampler RandomSampler ReplacementSampler MapSampler "
    "Infinite": (
        "pc.data.Sampler(len(dataset)), with shuffle=True or replacement=True; it counts epochs itself"
    ),
    "BatchSampler DistributedBatchSampler": "pc.data.BatchSampler(len(dataset), global_batch_size=64)",
    "StreamSampler QueueDataset": "pc.data.shard(stream)",
    "DataLoader": "pc.data.DataLoader(dataset, global_batch_size=64)",
    "AverageMeter Meter": "pc.metrics.Meter()",
    "accuracy": "pc.metrics.accuracy(scores, labels, topk=(1, 5))",
    "ProgressMeter": "pc.progress(loader)",
    "convert_sync_batchnorm convert_syncbn_model": "pc.torch.SyncBatchNorm.convert(model)",
    "init_rpc rpc_sync rpc_async rpc remote RRef": "with pc.serving(function): and pc.call(function, rank=0), or "
    "pc.call_async",
    "get_worker_info": "pc.rank(): functions are called by pc.call(function, rank=0)",
    "set_timeout default_pg_timeout": "pc.init(timeout=60), or timeout= of a call",
    "DebugLevel get_debug_level set_debug_level record_comm": "pc.debug.dump(): calls are always checked and recorded",
    "set_global_seed set_seed manual_seed": "pc.seed(7)",
    "single_process_scope": "@pc.single_process",
    "main_process_first": "with pc.main_first():",
    "local_main_process_first": "with pc.main_first(local=True):",
    "breakpoint": "pc.debug.breakpoint()",
    "Wtime": "time.perf_counter()",
    "start_timeline stop_timeline": "torch.profiler, which shows the calls of torch's backend; pc.debug.dump() has the "
    "last calls",
    "is_homogeneous": "len(set(collections.Counter(pc.info().hosts).values())) == 1",
    "get_device_count": "pc.local_size(): a rank has one device, pc.device()",
    "synchronized": "pc.barrier() behind the call; where one rank calls it for all, @pc.single_process",
    "join Join": "with pc.torch.join(model): around the loop",
    "save save_state_dict": "pc.checkpoint.save(state, path)",
    "load load_state_dict": "pc.checkpoint.load(path)",
    "nccl gloo Backend": 'pc.init(backend="auto"), "tcp", "shm" or "nccl"',
    "compile_extern": "leave it out: no code is compiled at the first use",
}

# Attributes of objects, prefixed with their type.
ATTRIBUTES: dict[str, str] = {
    "Group.is_member": "g is not None: pc.group([0, 2]) is None on ranks outside",
    "Group.process_group": "g itself",
    "Group.key Group.id Group.name Group.comp_node": "leave it out: a group needs no name; its members are g.ranks",
    "Group.is_single_machine": "g.local_size == g.size",
    "Group.proc_ranks Group.process_ids": "g.ranks",
    "Group.nranks Group.world_size": "g.size",
    "Group.Split": "g.split(color, key)",
    "Group.Dup Group.Clone": "g.group(range(g.size)), with calls separate from those of g",
    "Group.Create Group.Create_group Group.Incl": "g.group([0, 2])",
    "Group.Get_group": "g.ranks, of which g.group() takes some",
    "Group.Free Group.Disconnect": "g.close()",
    "Work.is_completed Work.Test Work.test": "work.done()",
    "Work.is_success": "work.exception() is None, when work.done()",
    "Work.get_future": "await work, or work.wait() and work.result()",
    "Work.synchronize Work.block_current_stream": "work.wait()",
    "Work.numpy Work.shape Work.dtype Work.device Work.item Work.tolist": "work.result(), which is the array",
    "Work.source_rank": "pc.recv(x, pc.ANY_SOURCE, with_source=True), which gives the array and the rank",
    "Store.user_set": 'store.set("k", 1)',
    "Store.user_get": 'store.get("k", timeout=10)',
    "Store.user_pop": 'store.pop("k")',
    "Store.compare_set": 'store.add("k") == 1, which is true for the first rank that comes',
    "Store.delete_key": 'store.delete("k")',
    "Store.has_key": 'store.check("k")',
    "Store.multi_get": "[store.get(key) for key in keys]",
    "Store.multi_set": "store.set(key, value) for each",
    "Store.append Store.queue_push": """store.set(f"q/{store.add('n')}", value), which gives each value its own key""",
    "Store.queue_pop": """store.pop(f"q/{store.add('taken')}")""",
    "Store.queue_len": """store.add('n', 0) - store.add('taken', 0), the values set minus the pops begun""",
    "Store.num_keys": "len(store.keys())",
    "Store.list_keys": "store.keys()",
    "Store.clone": "store itself, which all threads may use",
    "Store.set_timeout Store.timeout": "timeout= of the call, or pc.init(timeout=60)",
    "Store.group_barrier Store.barrier": "pc.barrier(timeout=60)",
    "Store.has_extended_api": "leave it out: every store has all calls",
    "Store.bcast_val": "pc.broadcast_object(x)",
    "Mesh.get_group": 'mesh["dp"]',
    "Mesh.get_local_rank": 'mesh["dp"].rank',
    "Mesh.get_coordinate": "mesh.coordinates",
    "Mesh.mesh_dim_names Mesh.dim_names": "mesh.names",
    "Mesh.ndim": "len(mesh.shape)",
    "Mesh.mesh Mesh.process_ids": 'mesh["dp"].ranks, of each axis',
    "Mesh.get_rank": "pc.rank()",
    "Meter.avg": "meter.mean, of this rank; over all ranks meter.compute()",
    "Meter.global_avg Meter.all_reduce": "meter.compute(), over all ranks",
    "Meter.val Meter.value": "meter.mean; the last value alone is not kept",
    "Meter.synchronize_between_processes": "meter.compute(), over all ranks",
    "Meter.display": 'pc.print(f"loss {meter.mean:.4e}")',
    "Meter.sum": "meter.total",
    "Meter.count": "meter.weight",
    "DataParallel.scale_loss": "leave it out: the mean over ranks needs no scaled loss",
    "DataParallel.apply_collective_grads": "leave it out: backward() averages gradients; model.synchronize() does "
    "so by hand",
    "DistributedOptimizer.backward": "loss.backward(), and optimizer.step() without an argument",
    "SyncBatchNorm.convert_sync_batchnorm": "pc.torch.SyncBatchNorm.convert(model), or that of pc.paddle, with group= "
    "for process_group=",
}

# Keyword arguments.
ARGUMENTS: dict[str, str] = {
    "device_ids output_device device_id": "leave it out: a rank has one device, pc.device(), and the model stays where "
    "it is",
    "find_unused_parameters static_graph": "leave it out: parameters that a backward does not use need no flag",
    "gradient_as_bucket_view": "leave it out: gradients are views of buckets where they can be",
    "process_group pg comm process_set": "group=",
    "device_mesh": 'group=mesh["dp"], of mesh = pc.Mesh((2, -1), ("dp", "tp"))',
    "group": "the call as a method of the group: g.allreduce(x)",
    "bucket_cap_mb comm_buffer_size": "bucket_nbytes=25 << 20",
    "last_comm_buffer_size": "first_bucket_nbytes=1 << 20",
    "strategy check_reduction delay_all_reduce_named_params param_to_hook_all_reduce": "leave it out",
    "init_sync": "leave it out: what rank 0 has is given to all at the beginning",
    "param_sync_iter": "leave it out: parameters stay equal; or repeat pc.broadcast(list(model.parameters()))",
    "mixed_precision": 'leave it out: torch.autocast does that; compression="bf16" halves what travels',
    "drop_last": 'uneven="drop", "pad" or "exact"',
    "backend": 'pc.init(backend="tcp"): a world has one for all its groups and calls',
    "device device_type": "leave it out: arrays are made where the framework makes them, on pc.device()",
    "mesh_shape": "the first argument",
    "mesh_dim_names dim_names": "names=",
    "num_replicas nranks": "group=, default the world: the sampler asks it for its size",
    "dataset data_source": "the dataset, or its length, as the first argument, by position",
    "sampler batch_sampler": "leave it out: pc.data.DataLoader makes its own; with another one take the framework's "
    "DataLoader",
    "pin_memory persistent_workers prefetch_factor worker_init_fn use_shared_memory": 'options={"pin_memory": True}, '
    "of pc.data.DataLoader",
    "batch_size": "global_batch_size=64, of all ranks together, or batch_size_per_rank=16",
    "async_op sync_op blocking use_calc_stream": "the separate call that ends in _async: pc.allreduce_async(x)",
    "args": "the arguments themselves, behind the function: pc.run(main, 1, 2, n=4), pc.call(function, 1, 2, rank=0)",
    "n_gpus nprocs np num_proc num_processes n_procs nproc_per_node ranks": "n=",
    "master_ip master_addr master_address host": 'master="host:port"; of init() the first argument, "host:port"',
    "port master_port": 'the port behind the host, master="host:port"; of init() "host:port"',
    "world_size num_processes_total": "size=, or n=",
    "init_method coordinator_address url": 'the first argument: pc.init("host:port", rank=0, size=2)',
    "process_id local_rank": "rank=; pc.local_rank() is found by itself",
    "store": "leave it out: the ranks have pc.store()",
    "src dst root_rank src_rank dst_rank group_src group_dst": "root=; of send and recv the second argument, the peer, "
    "by position: pc.send(x, 1), pc.recv(x, 0)",
    "dest source dest_rank": "the second argument, the peer, by position: pc.send(x, 1), pc.recv(x, 0)",
    "tensor tensor_list sendbuf recvbuf inp input array object_list": "the first argument, by position; out= is where "
    "the result goes",
    "output output_tensor output_tensor_list out_tensor_list gather_list": "out=",
    "scatter_list input_list input_tensor_list in_tensor_list": "one array that is cut, or the call that ends in "
    "_object",
    "input_split_sizes sendcounts in_split_sizes splits": "counts=",
    "output_split_sizes recvcounts out_split_sizes": "recv_counts=",
    "reduce_op reduction_op reduce_method average": 'op="sum" or "avg"',
    "prescale_factor postscale_factor": 'op=pc.scaled("sum", factor)',
    "name": "leave it out: a Meter has none, and calls are distinguished by their order",
    "fmt": 'leave it out: pc.print(f"{meter.mean:.4e}")',
    "object_gather_list": "leave it out: the root gets the list as the result",
    "axis_name": 'leave it out: a call is on the world, or on an axis of a mesh: mesh["dp"].allreduce(x)',
    "perm": "the destination and the source: pc.sendrecv(x, 1, 0)",
    "sparse_as_dense": "leave it out: a sparse gradient is summed as it is",
    "dim split_axis": "axis=",
    "concat_axis": "axis=, along which alltoall cuts and joins; docs/coming-from.md has the line for two axes",
    "gradient_predivide_factor": 'op=pc.scaled("sum", factor)',
    "timeout_s wait_timeout timeout_ms": "timeout=, in seconds",
    "join daemon start_method": "leave it out: run() waits, and starts fresh processes",
    "map_location weights_only": "read=functools.partial(torch.load, ...)",
    "local_size": "leave it out: it is found by itself",
}

# Options of launchers.
OPTIONS: dict[str, str] = {
    "--nproc-per-node --nproc_per_node --num-proc --num_proc --n --np --nproc --ntasks --num_processes "
    "--num-processes --nprocs --npernode -npernode -ppn --ppn --ntasks-per-node": "-n 4",
    "-N": "--nnodes 2 for machines, -n 4 for the ranks of each",
    "-c": "-- python -c 'code', behind our own options",
    "--gpu --devices --gpu-ids --gpu_ids --xpus --npus --num_gpus --num-gpus": "--gpus 0,1",
    "--node_rank --machine_rank --machine-rank --rank --rank-start": "--node-rank 0",
    "--nnode --num_machines --num-machines --num_nodes --num-nodes --nodes": "--nnodes 2",
    "--master-addr --master_addr --master-ip --master_ip --main_process_ip --rdzv-endpoint --rdzv_endpoint --ips "
    "--master-port --master_port --main_process_port --port": "--master HOST:PORT",
    "--rdzv-backend --rdzv_backend --rdzv-id --rdzv_id --rdzv-conf --rdzv_conf --standalone --job_id "
    "--monitor-interval": (
        "nothing: ranks of one machine find each other, those of several by --nnodes, --node-rank and --master"
    ),
    "--max_restarts --max_restart --max-restart": "--max-restarts 3",
    "--log_dir --redirects -r --tee -t --output-filename": "--log-dir FOLDER",
    "--local-ranks-filter --local_ranks_filter": "--only-rank 0,1",
    "--log_level --log-level --verbose": "nothing: the environment variable PYCOLLECTIVE_LOG says how much is logged",
    "--numa-binding --numa_binding --bind-to --map-by": "nothing: numactl or taskset around the command binds ranks",
    "--run_mode --run-mode --servers --trainers --server_num --trainer_num": "nothing: there are no parameter servers; "
    "a small one is `with pc.serving(function):` and pc.call(function, rank=0)",
    "--with_gloo --gloo_port --start_port --auto_cluster_config --duplicate-stdout-filters "
    "--local-addr --local_addr --sort_ip --event-log-handler --event_log_handler "
    "--log_overwrite --enable_gpu_log --auto_parallel_config --auto_tuner_json --legacy --elastic_timeout "
    "--logs-specs --logs_specs --signals-to-handle --virtual-local-rank --virtual_local_rank": "nothing: leave it out",
    "--config_file --config-file": "nothing: there is no such file; options and environment variables say all",
    "--mixed_precision": "nothing: torch.autocast in the program does that",
    "--no-python --no_python": "nothing: a program that does not end in .py is run as it is",
    "--use-env --use_env": "nothing: LOCAL_RANK is always set",
    "--local_rank --local-rank": "--local-rank-arg, for scripts that take --local_rank",
    "-H --hosts --hostfile -hostfile --host -host --machinefile -machinefile --hosts-file": "one launcher on each "
    "machine, with --nnodes, --node-rank and --master; or mpirun itself, which starts ranks of ours too",
    "--run-path --run_path --start-method --start_method --role --allow-run-as-root --oversubscribe "
    "--mca --network-interface --tag-output -x -genv --elastic_level --elastic-level --min-np --max-np": (
        "nothing: leave it out"
    ),
}

# Advice for surplus positional arguments of a call.
TOO_MANY_OF: dict[str, str] = {
    "Meter.__init__": 'leave them out: a Meter has no name and no format; pc.print(f"loss {meter.mean:.4e}") shows it',
}

# Arguments of one call, prefixed with its name, that no other library uses.
ARGUMENTS_OF: dict[str, str] = {"Meter.update n": "weight=3"}

BARE_NAMES = re.compile(r"\w+=(, or \w+=)*")
BARE = re.compile(
    r"\S*\(\) got (?:an unexpected keyword argument '(\w+)'|multiple values for argument '(group)')"
)
TOO_MANY = re.compile(r"(\S+)\(\) takes .* positional arguments? but \d+ (?:was|were) given")
ALONE = "leave it out"  # advice that begins with this says what to do; other advice is what to write
NEAR = 0.75  # names that are less similar than this do not count as misspelled


def _one_by_one(table: dict[str, str]) -> dict[str, str]:
    return {word: here for words, here in table.items() for word in words.split()}


@functools.cache
def _names() -> dict[str, str]:
    return _one_by_one(NAMES)


@functools.cache
def _attributes() -> dict[str, str]:
    return _one_by_one(ATTRIBUTES)


@functools.cache
def _arguments() -> dict[str, str]:
    return _one_by_one(ARGUMENTS)


@functools.cache
def _options() -> dict[str, str]:
    return _one_by_one(OPTIONS)


def _near(word: str, known: Iterable[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word, [each for each in known if not each.startswith("_")], 1, NEAR)
    return f"did you mean {found[0]}?" if found else ""


def _written(here: str) -> str:
    return here if here.startswith(ALONE) else f"write {here}"


def missing(module: str, name: str, there: Iterable[str] = ()) -> AttributeError | ImportError:
    """Return the error for a missing attribute of a module, for the module's __getattr__ to raise.

    `there` lists the attributes that the module has. For `from module import name` this returns an
    ImportError, because Python would replace an AttributeError by its own ImportError without
    advice.
    """
    here = "" if name.startswith("__") else _of_module(module, _names().get(name, ""), there)
    advice = _written(here) if here else _near(name, there)
    if advice and _is_import_from(sys._getframe(1).f_back):
        return ImportError(f"cannot import name {name!r} from {module!r}: {advice}", name=module)
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(f"{text}: {advice}" if advice else text, name=name)


def _of_module(module: str, here: str, there: Iterable[str]) -> str:
    """Rewrite advice about the package's functions for a submodule with equal function names."""
    if module == "pycollective":
        return here
    inside = module.removeprefix("pycollective.")
    return re.sub(r"\bpc\.(\w+)\(", lambda f: f"pc.{inside}.{f[1]}(" if f[1] in there else f[0], here)


def _is_import_from(frame: FrameType | None) -> bool:
    """Return whether the frame executes `from module import name`.

    In all other cases, such as getattr() and hasattr(), the error must be an AttributeError.
    """
    import dis

    if frame is None:
        return False
    at = frame.f_lasti  # outside co_code in a frame of compiled code: the slice below is then empty
    return frame.f_code.co_code[at : at + 1] == bytes([dis.opmap["IMPORT_FROM"]])


def missing_in(owner: type, kind: str, name: str) -> AttributeError:
    """Return the error for a missing attribute of an object.

    `kind` is the name that users see for its type.
    """
    here = _attributes().get(f"{kind}.{name}", "")
    if not here and kind == "Group":
        here = _of_group(owner, _names().get(name, ""))
    advice = _written(here) if here else _near(name, dir(owner))
    text = f"{kind!r} object has no attribute {name!r}"
    return AttributeError(f"{text}: {advice}" if advice and not name.startswith("_") else text, name=name)


def _of_group(owner: type, here: str) -> str:
    """Rewrite advice about the package's functions for the methods and attributes of a group `g`.

    Attributes that are numbers are written without parentheses.
    """

    def own(found: re.Match[str]) -> str:
        attribute = getattr(owner, found[1], None)
        if attribute is None:
            return found[0]
        return f"g.{found[1]}{found[2] if callable(attribute) else ''}"

    return re.sub(r"\bpc\.(?:world\(\)\.)?(\w+)(\(\)|)", own, here).removesuffix(", of a group g")


def of_argument(name: str, known: Iterable[str] = ()) -> str:
    """Return what to write for an unknown keyword argument, or an empty string."""
    own = {each.strip("=") for each in known}
    near = _near(name, own)
    here = _arguments().get(name, "")
    if own and BARE_NAMES.fullmatch(here):
        names = re.findall(r"\w+(?==)", here)
        fitting = [f"{each}=" for each in names if each in own]
        here = " or ".join(fitting) or _arguments().get(names[0], "leave it out")
    return _written(here) if here else near


def of_option(word: str, known: Iterable[str] = ()) -> str:
    """Return what to write for an unknown option of `pycollective run`, or an empty string."""
    option = word.partition("=")[0]
    here = _options().get(option, "")
    if here.startswith("nothing: "):
        return f"{option}: {here.removeprefix('nothing: ')}"
    return f"for {option} write {here}" if here else _near(option, known)


def advise(error: TypeError, function: Callable[..., object], given: Iterable[str] = ()) -> None:
    """Add advice to a call's TypeError for unknown arguments.

    `given` lists all keywords of the call, because Python names only one.
    """
    import inspect

    if (many := TOO_MANY.fullmatch(str(error))) and many[1] in TOO_MANY_OF:
        error.args = (f"{error}: {TOO_MANY_OF[many[1]]}",)
    if (found := BARE.match(str(error))) is None:
        return
    parameters = [*inspect.signature(function).parameters.values()]
    by_order, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    own = {each.name for each in parameters if each.kind in (by_order, by_name)} - {"self", "cls"}
    others = [each for each in given if each not in own and each != found[1]] if found[1] else []
    if [(each.name, each.kind) for each in parameters[:1]] == [("group", by_order)]:
        own.discard("group")  # a method has no such argument: it uses its own group
    here = ARGUMENTS_OF.get(f"{function.__qualname__} {found[1]}")
    advice = _written(here) if here else of_argument(found[1] or found[2], own)
    more = [f"'{each}': {of_argument(each, own) or 'there is none either'}" for each in others]
    if advice or more:
        error.args = (f"{found[0]}: {'; '.join([advice or 'there is none', *more])}",)


def markdown() -> str:
    """Return the tables as lists of Markdown, as they appear in docs/coming-from.md."""
    lines: list[str] = []
    for title, table, suffix in (
        ("Functions and classes", NAMES, ""),
        ("Attributes and methods", ATTRIBUTES, ""),
        ("Keyword arguments", ARGUMENTS, "="),
        ("Options of `pycollective run`", OPTIONS, ""),
    ):
        lines += ["", f"### {title}", ""]
        for words, here in table.items():
            there = " ".join(f"`{word}{suffix}`" for word in words.split())
            lines += _list_item(f"{there}: {here}")
    return "\n".join(lines[1:]) + "\n"


def _list_item(text: str) -> list[str]:
    """Return the lines of an item of a Markdown list, at most 120 columns wide."""
    lines = ["-"]
    for word in text.split(" "):
        if len(lines[-1]) + 1 + len(word) > 120 and word != "-":  # a line with "- " would be another item
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return lines
