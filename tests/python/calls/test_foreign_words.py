"""Names, arguments and options of other systems raise errors that name what to write here."""

from __future__ import annotations

import collections
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing
from pycollective.base import foreign_words
from pycollective.base.advice import advised
from pycollective.cli import main, make_parser

ROOT = Path(__file__).resolve().parents[3]
TABLES = (foreign_words.NAMES, foreign_words.ATTRIBUTES, foreign_words.ARGUMENTS, foreign_words.OPTIONS)


def test_the_page_has_the_tables_and_no_word_stands_twice() -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    assert page.endswith(foreign_words.markdown()), "write foreign_words.markdown() to the end of the page"
    for table in TABLES:
        words = " ".join(table).split()
        assert sorted(words) == sorted(set(words))
        assert table is foreign_words.OPTIONS or not any(
            here.startswith("nothing") for here in table.values()
        )


def test_what_the_tables_say_exists() -> None:
    for table in TABLES:
        for here in table.values():
            for dotted in re.findall(r"\bpc\.([\w.]+)", here):
                owner: Any = pc
                for name in dotted.rstrip(".").split("."):
                    owner = getattr(owner, name)
    options = {word for action in _run_options() for word in action.option_strings}
    for here in foreign_words.OPTIONS.values():
        assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", here)) <= options | {"--local_rank", "-c"}, here


def _run_options() -> list[Any]:
    (commands,) = (each for each in make_parser()._actions if hasattr(each, "choices") and each.choices)
    assert isinstance(commands.choices, dict)
    actions: list[Any] = commands.choices["run"]._actions
    return actions


@pytest.mark.parametrize(
    ("module", "name", "answer"),
    [
        ("pycollective", "get_rank", r"write pc\.rank\(\)"),
        ("pycollective", "get_world_size", r"write pc\.size\(\)"),
        ("pycollective", "ReduceOp", 'pc.allreduce.x, "sum".'),
        ("pycollective", "init_process_group", r"write pc\.init\(\)"),
        ("pycollective", "all_reduce", r"write pc\.allreduce\(x\)"),
        ("pycollective", "DistributedDataParallel", r"pc\.torch\.DataParallel\(model\)"),
        ("pycollective", "allreduse", r"did you mean allreduce\?"),
        ("pycollective", "pack_allreduce_split", r"write pc\.allreduce\(params\)"),
        ("pycollective", "var_all_reduce", r"write pc\.allreduce\(x\)"),
        ("pycollective", "get_global_rank", r"write g\.ranks\[rank\]"),
        ("pycollective", "global_rank", r"write pc\.rank\(\)"),
        ("pycollective", "Reducer", r"write pc\.GradientReducer\(parameters\)"),
        ("pycollective", "reduce_mean", r'write pc\.allreduce\(x, "avg"\)'),
        ("pycollective", "mpi", r"write pc itself: pc\.rank\(\)"),
        ("pycollective", "Sampler", r"write pc\.data\.Sampler"),
        ("pycollective", "compile_extern", "leave it out"),
        ("pycollective", "is_available", "leave it out: what can be imported can be used"),
        ("pycollective", "mpi_built", "leave it out: no MPI, Gloo, oneCCL or DDL is used"),
        ("pycollective", "is_torchelastic_launched", r"write pc\.info\(\)\.launcher"),
        ("pycollective", "is_backend_available", r'write bool\(pc\.available\("nccl"\)\)'),
        ("pycollective.torch", "DistributedDataParallel", r"pc\.torch\.DataParallel\(model\)"),
        ("pycollective.torch", "broadcast_parameters", r"pc\.broadcast\(model\.state_dict\(\)\)"),
        ("pycollective.data", "DistributedSampler", r"pc\.data\.Sampler"),
        ("pycollective.metrics", "means", r"did you mean mean\?"),
        ("pycollective.checkpoint", "lode", r"did you mean load\?"),
    ],
)
def test_a_name_of_elsewhere_is_answered_by_ours(module: str, name: str, answer: str) -> None:
    with pytest.raises(AttributeError, match=rf"module '{module}' has no attribute '{name}': .*{answer}"):
        getattr(importlib.import_module(module), name)


def test_an_unknown_name_is_reported_as_python_does() -> None:
    with pytest.raises(AttributeError, match="^module 'pycollective' has no attribute 'xyzzy'$"):
        _ = pc.xyzzy
    assert not hasattr(pc, "__wrapped__")


@pytest.mark.parametrize("name", ["rank_of", "local_devices", "size_of_world"])
def test_what_is_only_a_little_alike_is_no_guess(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
        getattr(pc, name)


WORDS = """
    override_backend synchronized param_pack_split param_pack_concat get_offsets functional TensorFuture
    get_py_server_addr get_mm_server_addr SequentialSampler RandomSampler ReplacementSampler MapSampler
    StreamSampler Infinite DataLoader ParallelEnv ParallelMode gloo_init_parallel_env gloo_barrier gloo_release
    fleet rpc group_sharded_parallel SyncBatchNorm DataParallel get_process_group_ranks get_group_rank
    get_pg_count RRef get_worker_info set_timeout DebugLevel ProcessRaisedException get_state set_state
    AverageMeter ProgressMeter compile_extern all_gather_coalesced
    MPI COMM_SELF Probe Wtime ANY_TAG IN_PLACE Status Dup Abort psum pmean pmax pmin ppermute axis_index breakpoint
    split
    shard_tensor reshard get_mesh save_state_dict start_timeline elastic is_homogeneous DistBackendError DistStoreError
    Backend GroupMember rendezvous helper get_device_count main_process_first wait_for_everyone is_main_process
    nccl_all_reduce
    group_src= group_dst= object_gather_list= in_tensor_list= out_tensor_list= axis_name= perm= sparse_as_dense=
    args= split_axis= concat_axis= dest_rank= device_type= sampler= pin_memory= param_sync_iter= dim= init_sync=
    check_reduction= delay_all_reduce_named_params= device_mesh= mixed_precision= dataset= async_op=
    --log_level --with_gloo --log_overwrite --servers --auto_parallel_config --numa-binding --run_mode
    --local-ranks-filter --local-addr --event-log-handler --sort_ip
    -c -N -ppn --npernode --ntasks-per-node --verbose --config_file --mixed_precision
"""


@pytest.mark.parametrize("word", WORDS.split())
def test_a_word_that_a_user_has_typed_has_an_answer(word: str) -> None:
    if word.startswith("-"):
        answer = foreign_words.of_option(word)
    elif word.endswith("="):
        answer = foreign_words.of_argument(word.rstrip("="), ["group", "timeout"])
    else:
        answer = str(foreign_words.missing("pycollective", word)).partition(": ")[2]
    assert re.match(rf"write |leave it out|for {word} write |{word}: ", answer), answer


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "from pycollective import all_reduce",
            r"cannot import name 'all_reduce' from 'pycollective': write pc\.all",
        ),
        ("from pycollective import allreduse", r"did you mean allreduce\?"),
        (
            "from pycollective.torch import DistributedDataParallel",
            r"write pc\.torch\.DataParallel\(model\)",
        ),
        ("from pycollective import xyzzy", r"cannot import name 'xyzzy' from 'pycollective' \("),
        ("import pycollective.distributed as dist", r"write `import pycollective as pc`, then pc\.init\(\)"),
        (
            "from pycollective.distributed import all_reduce",
            r"write `import pycollective as pc`, then pc\.init\(\)",
        ),
    ],
)
def test_an_import_of_elsewhere_is_answered_by_ours(line: str, answer: str) -> None:
    with pytest.raises(ImportError, match=answer):
        exec(line, {})


def test_what_can_be_imported_or_not_is_an_attribute_or_not() -> None:
    assert not hasattr(pc, "all_reduce")
    assert getattr(pc, "get_rank", None) is None
    with pytest.raises(AttributeError):
        exec("import pycollective; pycollective.all_reduce", {})


def linear() -> Any:
    return torch.nn.Linear(2, 1)


ARGUMENTS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (pc.allreduce, {"async_op": True}, r"pc\.allreduce_async\(x\)"),
    (pc.allreduce, {"group": None}, r"g\.allreduce\(x\)"),
    (pc.broadcast, {"src": 0}, "write root="),
    (pc.allreduce, {"timeuot": 3}, r"did you mean timeout\?"),
    (lambda _, **given: pc.init(**given), {"world_size": 2}, "write size="),
    (
        lambda _, **given: pc.init(**given),
        {"init_method": "tcp://a:1"},
        r'pc\.init\("host:port", rank=0, size=2\)',
    ),
    (lambda _, **given: pc.run(abs, 1, **given), {"nprocs": 2}, "write n="),
    (
        lambda _, **given: pc.run(abs, **given),
        {"args": (1,)},
        r"write the arguments themselves.*pc\.run\(main, 1, 2",
    ),
    (
        lambda _, **given: pc.data.Sampler(**given),
        {"dataset": [1]},
        "write the dataset, or its length, as the first",
    ),
    (lambda _, **given: pc.metrics.Meter(**given), {"name": "loss"}, "leave it out: a Meter has none"),
    (pc.allreduce, {"dim": 0}, "leave it out"),
    (pc.allgather, {"dim": 0}, "write axis="),
    (lambda _, **given: pc.launch(**given), {"n_gpus": 2}, "write n="),
    (lambda _, **given: pc.launch(**given), {"master_ip": "a"}, 'master="host:port"'),
    (lambda _, **given: testing.run(abs, 2, 1, **given), {"timeout": 2}, r"did you mean timeout_s\?"),
    (
        lambda x, **given: pc.GradientReducer({"x": x}, **given),
        {"bucket_cap_mb": 25},
        "bucket_nbytes=25 << 20",
    ),
    (lambda _, **given: pc.data.Sampler(10, **given), {"drop_last": True}, 'uneven="drop"'),
    (lambda _, **given: pc.data.BatchSampler(10, **given), {"batch_size": 2}, "global_batch_size="),
    (lambda _, **given: pc.checkpoint.load("a", **given), {"map_location": "cpu"}, "read="),
    (lambda _, **given: pc.seed(7, **given), {"rank": 1}, ""),
    (pc.broadcast_object, {"src": 0}, "write root="),
    (pc.broadcast_object, {"device": "cpu"}, "leave it out"),
    (lambda _, **given: pc.single_process(**given), {"process_group": None}, "write group="),
    (lambda _, **given: pc.serving(abs, **given), {"process_group": None}, "write group="),
    (lambda _, **given: pc.coalesce(**given), {"process_group": None}, "write group="),
    (lambda _, **given: pc.zeros(3, **given), {"device": "cuda"}, "leave it out"),
    (lambda x, **given: pc.metrics.cat(x, **given), {"process_group": None}, "write group="),
    (lambda x, **given: pc.metrics.mean(x, **given), {"process_group": None}, "write group="),
]
OF_TORCH: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (
        lambda _, **given: pc.torch.DataParallel(linear(), **given),
        {"device_ids": [0]},
        "leave it out: a rank has one",
    ),
    (
        lambda _, **given: pc.torch.DataParallel(linear(), **given),
        {"find_unused_parameters": True},
        "leave it out",
    ),
    (lambda _, **given: pc.torch.DataParallel(linear(), **given), {"process_group": None}, "write group="),
    (lambda _, **given: pc.torch.SyncBatchNorm(3, **given), {"process_group": None}, "write group="),
    (
        lambda _, **given: pc.torch.SyncBatchNorm.convert(linear(), **given),
        {"process_group": None},
        "write group=",
    ),
    (lambda _, **given: pc.torch.Pipeline(linear(), **given), {"chunks": 4}, ""),
]


@pytest.mark.parametrize(("call", "given", "answer"), ARGUMENTS + (OF_TORCH if torch is not None else []))
def test_an_argument_of_elsewhere_is_answered_by_ours(
    world_of_one: pc.Group, call: Callable[..., Any], given: dict[str, Any], answer: str
) -> None:
    (name,) = given
    with pytest.raises(
        TypeError, match=rf"got an unexpected keyword argument '{name}'(: .*{answer})?"
    ) as error:
        call(np.ones(2), **given)
    assert not answer or re.search(answer, str(error.value))


# Functions without a parameter that has another name elsewhere.
WITHOUT_HINTS = tuple(
    [
        "Availability",
        "Info",
        "Meter",
        "Store",
        "available",
        "ddp_comm_hook",
        "device",
        "explain",
        "scaled",
        "store",
        "world",
    ]
)


def public_calls() -> list[tuple[str, Callable[..., Any]]]:
    """Returns the calls with parameters that do not take every keyword."""
    modules = [pc, pc.checkpoint, pc.data, pc.metrics]
    if torch is not None:
        modules += [pc.torch, pc.torch.functional]
    found = []
    for module in modules:
        for name in module.__all__:
            call = getattr(module, name)
            if name not in WITHOUT_HINTS and callable(call) and not _is_without_keywords(call):
                found.append((f"{module.__name__}.{name}", call))
    return found


def _is_without_keywords(call: Any) -> bool:
    if isinstance(call, type) and (issubclass(call, Exception) or call.__init__ is object.__init__):
        return True
    try:
        kinds = {each.kind for each in inspect.signature(call).parameters.values()}
    except ValueError:  # a function of the core
        return False
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return kinds.isdisjoint(named) or inspect.Parameter.VAR_KEYWORD in kinds


@pytest.mark.parametrize(("name", "call"), public_calls())
def test_every_public_call_answers_words_of_elsewhere(world_of_one: pc.Group, name: str, call: Any) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'static_graph': leave it out"):
        call(static_graph=True)


def test_all_arguments_of_elsewhere_are_answered_at_once(world_of_one: pc.Group) -> None:
    launch: Any = pc.launch
    with pytest.raises(TypeError) as error:
        launch(n=2, n_gpus=2, master_ip="a", port=3, xyzzy=1)
    assert re.fullmatch(
        r"launch\(\) got an unexpected keyword argument 'n_gpus': write n=; 'master_ip': write master=.*; "
        "'port': write the port behind the host.*; 'xyzzy': there is none either",
        str(error.value),
    )
    with pytest.raises(TypeError, match=r"argument 'xyzzy': there is none; 'n_gpus': write n=$"):
        launch(xyzzy=1, n_gpus=2)


def test_a_meter_takes_no_name_and_says_so() -> None:
    meter: Any = pc.metrics.Meter
    with pytest.raises(
        TypeError, match=r"but 3 were given: leave them out: a Meter has no name and no format"
    ):
        meter("Loss", ":.4e")


def wants_a_rank(rank: int, world_size: int) -> int:
    return rank + world_size


def takes_nothing() -> None:
    wants_a_rank(1)  # type: ignore[call-arg]


def test_a_function_that_waits_for_its_rank_raises_where_it_is() -> None:
    """torch's spawn passes the rank before the arguments."""
    with pytest.raises(
        TypeError, match=r"missing 1 required positional argument: 'world_size': run\(\) .*write pc\.rank\(\)"
    ):
        pc.run(wants_a_rank, 2, n=1)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'world_size'$"):
        pc.run(takes_nothing, n=1)


def test_no_hint_is_a_name_that_cannot_be_passed() -> None:
    def call(self: int, *args: int, other: int = 0, **kwargs: int) -> None: ...

    error = TypeError("call() got an unexpected keyword argument 'sel'")
    foreign_words.advise(error, call)
    assert str(error).endswith("'sel'")
    for word in ("arg", "kwarg"):
        error = TypeError(f"call() got an unexpected keyword argument '{word}'")
        foreign_words.advise(error, call)
        assert str(error).endswith(f"'{word}'")


def test_ctrl_c_while_a_hint_is_looked_for_is_no_type_error(
    world_of_one: pc.Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(error: BaseException) -> None:
        def look(*_: object) -> str:
            raise error

        monkeypatch.setattr(foreign_words, "of_argument", look)

    x: Any = np.ones(2)
    for passes in (KeyboardInterrupt(), MemoryError()):
        raises(passes)
        with pytest.raises(type(passes)):
            pc.allreduce(x, src=0)  # type: ignore[call-arg]
    raises(RuntimeError("broken"))
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'src'$"):
        pc.allreduce(x, src=0)  # type: ignore[call-arg]


def test_a_call_on_objects_takes_its_group_as_a_method(world_of_one: pc.Group) -> None:
    with pytest.raises(TypeError, match=r"multiple values for argument 'group': write .*g\.allreduce\(x\)"):
        pc.allgather_object(1, group=world_of_one)  # type: ignore[call-arg]


def test_an_error_from_inside_is_left_alone() -> None:
    @advised
    def call(x: int, *, root: int = 0) -> int:
        return call(x, src=root)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"call\(\) got an unexpected keyword argument 'src': write root="):
        call(1)

    @advised
    def raises(*, fine: int = 0) -> None:
        raise TypeError("f() got an unexpected keyword argument 'src'")

    with pytest.raises(TypeError, match=r"^f\(\) got an unexpected keyword argument 'src'$"):
        raises()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--nproc-per-node 2", "for --nproc-per-node write -n 4"),
        ("--nproc_per_node=2", "for --nproc_per_node write -n 4"),
        ("--rank 0", "for --rank write --node-rank 0"),
        ("--devices 0,1", "for --devices write --gpus 0,1"),
        ("--rdzv-endpoint a:1", "for --rdzv-endpoint write --master HOST:PORT"),
        ("--standalone", "--standalone: ranks of one machine find each other"),
        ("-H a,b", "one launcher on each machine"),
        ("--log_dir x", "write --log-dir"),
        ("--max-restart 3", "write --max-restarts"),
        ("--gpuss 1", r"did you mean --gpus\?"),
        ("--local-ranks-filter 0", "write --only-rank 0,1"),
        ("--run_mode=ps", "--run_mode: there are no parameter servers"),
        ("--sort_ip", "--sort_ip: leave it out"),
        ("-c print()", r"for -c write -- python -c 'code'"),
        ("--npernode 2", "for --npernode write -n 4"),
        ("-npernode 2", "for -npernode write -n 4"),
        ("--stdin 0 -hostfile h", "for -hostfile write one launcher on each machine"),
    ],
)
def test_an_option_of_elsewhere_is_answered_by_ours(
    words: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", *words.split(), "train.py"])
    assert re.search(answer, capsys.readouterr().err)


def test_other_commands_are_no_launchers(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bench", "--port", "3"], ["tune", "--gpuss", "1"], ["doctor", "--rank", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert capsys.readouterr().err.endswith(f"unrecognized arguments: {' '.join(words[1:])}\n")


def test_words_behind_the_program_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = make_parser().parse_args(["run", "-n", "2", "--no-banner", "train.py", "-hostfile", "h"])
    assert parsed.program == ["train.py", "-hostfile", "h"]
    parsed = make_parser().parse_args(["run", "-n2", "--", "python", "-c", "print()"])
    assert (parsed.ranks, parsed.program[-2:]) == (2, ["-c", "print()"])


def test_what_the_tables_have_for_groups_works(world_of_one: pc.Group) -> None:
    assert pc.group(pc.world().ranks) is not None
    assert len(set(collections.Counter(pc.info().hosts).values())) == 1


def test_every_option_of_run_may_be_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--only-rnk", "0", "train.py"])
    assert "did you mean --only-rank?" in capsys.readouterr().err
