"""docs/coming-from.md is true: its tests and calls exist, and no entry is missing."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pycollective as pc
from pycollective import _core
from pycollective.cli import make_parser

ROOT = Path(__file__).resolve().parents[3]
TESTS = {path.name: path for path in (ROOT / "tests" / "python").rglob("*.py")}
# Files without tests of their own. The file on the right runs every check or program of them.
RUN_BY = {"torch_backend_checks.py": "test_torch_backend.py", "torch_trainers.py": "test_torch_trainers.py"}
# The short names in the lines. Other names are the reader's.
NAMES: dict[str, Any] = {"pc": pc, "g": pc.Group, "s": pc.Store, "w": pc.Work, "mesh": pc.Mesh}
OTHER_LAUNCHERS = ("srun", "mpiexec", "torchrun", "mpirun")

# A word of each entry that the documents of the systems lead to. A "-" before it means that
# pycollective has nothing in its place.
SYSTEMS = {
    "MegEngine": """
        launcher init_process_group is_distributed get_rank override_backend Group group_barrier group_start
        get_client Server bcast_val check_is_grad bcast_list_ make_allreduce_cb synchronized
        param_pack_concat TensorFuture reduce_sum functional.broadcast all_gather reduce_scatter_sum
        all_reduce_max gather all_to_all remote_send differentiable RandomSampler -RingSampler SyncBatchNorm
        SyncMinMaxObserver hub.load seeds CUDA
    """,
    "Paddle": """
        init_parallel_env destroy_process_group new_group ReduceOp all_reduce reduce_scatter alltoall_single
        batch_isend_irecv wait is_completed all_gather_object communication.stream gloo_init_parallel_env
        num_partitions comm_buffer_size no_sync sync_params_buffers spawn --master --log_dir --max_restart
        --start_port -QueueDataset -auto_tuner_json PADDLE_TRAINER_ID
        paddle.distributed.get_rank() DistributedBatchSampler
        convert_sync_batchnorm shard_tensor save_state_dict group_sharded_parallel fleet rpc_sync
    """,
    "PyTorch": """
        init_process_group destroy_process_group get_global_rank new_subgroups DeviceMesh
        all_gather_into_tensor batch_isend_irecv scatter_object_list monitored_barrier PREMUL_SUM is_success
        compare_set TORCH_DISTRIBUTED_DEBUG supports_complex AsyncCollectiveTensor DistributedDataParallel
        join register_comm_hook _get_ddp_logging_data --rdzv-endpoint OMP_NUM_THREADS --local-rank mp.spawn
        DistributedSampler SyncBatchNorm -threads rpc_sync dist_autograd ZeroRedundancyOptimizer
        elastic.events
    """,
    "Jittor": """
        jt.in_mpi mpi.local_rank mpi.set_state mpi.broadcast var_all_reduce mpi_all_reduce mpi_reduce
        mpi_broadcast nccl_all_gather mpi_param_broadcast single_process_scope jt.rank param_sync_iter
        batch_size set_global_seed sync=True compile_extern mpirun MPI_DOUBLE_INT
    """,
    "Scripts": """
        dataparallel.py dataparallel_apex.py distributed.py distributed_mp.py distributed_apex.py
        grad_accu_steps reduce_mean dist.barrier AverageMeter validate print torch.distributed.launch faults
    """,
}


@dataclass(frozen=True)
class Line:
    system: str
    there: str
    here: str
    proofs: tuple[str, ...]

    @property
    def stands_for_nothing(self) -> bool:
        return self.here.startswith("Not here: ")


def lines() -> Iterator[Line]:
    """Yields the items of the lists: the name elsewhere, what to write here, and the tests."""
    page = (ROOT / "docs" / "coming-from.md").read_text()
    calls, _, _words = page.partition("\n## Word by word\n")  # test_foreign_words.py checks the words
    for section in calls.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for item in text.split("\n- ")[1:]:
            there, here, *tests = (" ".join(part.split()) for part in item.split("\n  - "))
            assert here.startswith(("Here: ", "Not here: ")), here
            assert len(tests) <= 1, item
            assert all(each.startswith("Tests: ") for each in tests), item
            yield Line(title.partition(":")[0], there, here, tuple(proofs_of("".join(tests))))


def proofs_of(text: str) -> Iterator[str]:
    """The tests of "Tests: `file.py`: `test_a`, `test_b`; ...", as "file.py::test_a"."""
    file = ""
    for span in spans(text):
        if span.endswith(".py"):
            file = span
        else:
            yield f"{file}::{span}"


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


LINES = list(lines())
IDS = [f"{line.system}-{number}" for number, line in enumerate(LINES)]
each_line = pytest.mark.parametrize("line", LINES, ids=IDS)


# ---- no line is missing


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_line_is_missing_and_nothing_is_left_out_but_what_is_known(system: str) -> None:
    words = SYSTEMS[system].split()
    of_system = [line for line in LINES if line.system == system]
    assert len(of_system) == len(words)
    for word, line in zip(words, of_system, strict=True):
        left_out = word.startswith("-") and not word.startswith("--")
        assert (word[1:] if left_out else word) in line.there, line.there
        assert line.stands_for_nothing == left_out, line.there


def test_no_system_is_missing() -> None:
    assert {line.system for line in LINES} == set(SYSTEMS)


# ---- every line is proved


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """Returns the tests, the decorated checks, and the ids of rows."""
    nodes = list(ast.walk(ast.parse(TESTS[file].read_text())))
    functions = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and (node.name.startswith("test_") or node.decorator_list)
    }
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(functions | texts)


@each_line
def test_its_tests_exist(line: Line) -> None:
    assert bool(line.proofs) != line.stands_for_nothing
    for proof in line.proofs:
        file, _, name = proof.partition("::")
        assert re.fullmatch(r"test_\w+\.py", file) or file in RUN_BY, proof
        assert name in names_in(file), proof


@pytest.mark.parametrize("file", RUN_BY)
def test_checks_that_are_no_tests_are_run_by_one(file: str) -> None:
    assert file.removesuffix(".py") in TESTS[RUN_BY[file]].read_text()


# ---- what it names exists


@each_line
def test_what_it_says_can_be_written_here(line: Line) -> None:
    for span in spans(line.here):
        check(span)


def check(span: str) -> None:
    """A command, an option of `pycollective run`, an environment variable, or Python."""
    if span.startswith("python -m "):
        assert importlib.util.find_spec(span.split()[2]), span
    elif span.startswith("pycollective "):
        check_command(span)
    elif span.startswith("--"):
        check_command(f"pycollective run {span} train.py")
    elif re.fullmatch("PYCOLLECTIVE_[A-Z_]+", span):
        assert f"`{span}`" in _core.environment_markdown()
    elif is_python(span):
        check_python(span)


def check_command(command: str) -> None:
    words = shlex.split(command)
    try:
        options = make_parser().parse_args(words[1:])
    except SystemExit:
        pytest.fail(f"{command}: no such option or command")
    program = getattr(options, "program", ())  # also takes unknown options
    assert not any(word.startswith("-") for word in program[:1]), command


def check_python(text: str) -> None:
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Attribute):
            named(node)
        elif isinstance(node, ast.Call):
            check_arguments(node)


def parsed(text: str) -> ast.Module:
    if text.startswith("@"):
        text += "\ndef main(): pass"
    elif text.startswith("with "):
        text += " pass"
    elif text.startswith("await "):
        text = f"async def main(): {text}"
    compile(text, "docs/coming-from.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return ast.parse(text)


def named(node: ast.expr) -> Any:
    """Returns the object with a name such as pc.data.Sampler, g.size or model.no_sync, or None."""
    if isinstance(node, ast.Name):
        return model_class() if node.id == "model" else NAMES.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = named(node.value)
    if owner is None:
        return None
    if node.attr in ("torch", "jax", "paddle") and owner is pc:
        return getattr(pc, node.attr) if importlib.util.find_spec(node.attr) else None
    assert node.attr in dir(owner), ast.unparse(node)
    found = inspect.getattr_static(owner, node.attr) if isinstance(owner, type) else getattr(owner, node.attr)
    return found if callable(found) or inspect.ismodule(found) else None


def model_class() -> Any:
    return pc.torch.DataParallel if importlib.util.find_spec("torch") else None


def check_arguments(call: ast.Call) -> None:
    function = named(call.func)
    if function is None or function is pc.world or function is pc.scaled:  # pybind11 has no signatures
        return
    signature = inspect.signature(function)
    of_a_class = isinstance(call.func, ast.Attribute) and isinstance(named(call.func.value), type)
    given = [*(["self"] if of_a_class and "self" in signature.parameters else []), *call.args]
    try:
        signature.bind(*given, **{str(keyword.arg): keyword.value for keyword in call.keywords})
    except TypeError as error:
        pytest.fail(f"{ast.unparse(call)}: {error}; it is {signature}")


# ---- what is a line or two is what its test runs


@functools.cache
def source_of(proof: str) -> str:
    """Returns the check in the form that ast gives it."""
    file, _, name = proof.partition("::")
    tree = ast.parse(TESTS[file].read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return "\n".join(map(ast.unparse, found))


def is_more_than_a_call(text: str) -> bool:
    """Returns whether it is an assignment, a comparison, several calls, or a nested call."""
    (statement, *_) = parsed(text).body
    if not isinstance(statement, ast.Expr):
        return isinstance(statement, ast.Assign | ast.AugAssign)
    value = statement.value
    inside = [*value.args, *value.keywords] if isinstance(value, ast.Call) else []
    nested = (ast.Call, ast.ListComp, ast.Starred)
    return isinstance(value, ast.Compare | ast.Tuple | ast.ListComp) or any(
        isinstance(node, nested) for each in inside for node in ast.walk(each)
    )


def is_python(span: str) -> bool:
    is_keyword = re.fullmatch(r"\w+=\S*", span)  # of the call before it
    return not (is_keyword or span.startswith(("-", "pycollective ", "python ")) or span in OTHER_LAUNCHERS)


@each_line
def test_its_lines_are_those_that_its_tests_run(line: Line) -> None:
    sources = "\n".join(source_of(proof) for proof in line.proofs)
    for span in filter(is_python, spans(line.here)):
        if is_more_than_a_call(span):
            assert ast.unparse(parsed(span)) in sources, span
