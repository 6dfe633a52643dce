"""Checkpoints are whole or absent, whatever dies. A failure on one rank is raised on all."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import json
import os
import random
import resource
import select
import signal
import stat
import struct
import tempfile
import tracemalloc
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import named_checks
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.checkpoint import typed_file

CHECKS = named_checks.Checks()
KILLS = int(os.environ.get("PYCOLLECTIVE_TEST_KILLS", "20"))


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Yields one folder for all ranks."""
    with tempfile.TemporaryDirectory() if pc.rank() == 0 else contextlib.nullcontext() as own:
        yield Path(pc.broadcast_object(own))
        pc.barrier()


def raised_everywhere(error: type[Exception], match: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=match):
        call(*args, **kwargs)
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(1, 2, 3)
def every_rank_loads_what_one_has_saved() -> None:
    state = {"step": pc.rank(), "weights": np.arange(100_000.0) + pc.rank(), "none": None, 3: (1, [2.5, "x"])}
    with shared_folder() as folder:
        last = pc.size() - 1
        pc.checkpoint.save(state, folder / "a", rank=last)
        for root in range(pc.size()):
            loaded = pc.checkpoint.load(folder / "a", root=root)
            assert (loaded["step"], loaded["none"], loaded[3]) == (last, None, (1, [2.5, "x"]))
            np.testing.assert_array_equal(loaded["weights"], np.arange(100_000.0) + last)
            loaded["weights"][:] = 0  # it is writable
        pc.checkpoint.save(1, str(folder / "a"))
        assert pc.checkpoint.load(folder / "a") == 1
        if pc.rank() == 0:
            assert [each.name for each in folder.iterdir()] == ["a"]


@CHECKS.on(1, 2)
def a_missing_file_is_that_on_every_rank() -> None:
    with shared_folder() as folder:
        raised_everywhere(FileNotFoundError, "no such", pc.checkpoint.load, folder / "no such")
        raised_everywhere(FileNotFoundError, "missing", pc.checkpoint.save, 1, folder / "missing" / "a")


@CHECKS.on(2)
def what_fails_while_it_saves_is_raised_on_all_and_the_old_file_stays() -> None:
    def fails(state: Any, file: BinaryIO) -> None:
        file.write(b"half")
        raise ZeroDivisionError("in the middle")

    with shared_folder() as folder:
        path = folder / "a"
        pc.checkpoint.save("old", path)
        raised_everywhere(ZeroDivisionError, "in the middle", pc.checkpoint.save, 1, path, write=fails)
        raised_everywhere(
            pc.InvalidArgument,
            r"obj\['model'\] is a .*Counter\. Leave",
            pc.checkpoint.save,
            {"model": Counter()},
            path,
        )
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if pc.rank() == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))  # as if the disk were full
        try:
            why = rf"{os.strerror(errno.EFBIG)}: '{path}'"
            raised_everywhere(OSError, why, pc.checkpoint.save, np.ones(1 << 18), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(ZeroDivisionError) as caught:
            pc.checkpoint.save(1, path, write=fails)
        assert isinstance(caught.value.__cause__, pc.RemoteError) == (pc.rank() == 1)
        assert pc.checkpoint.load(path) == "old"
        assert [each.name for each in folder.iterdir()] == ["a"]


@CHECKS.on(2)
def a_collective_while_it_saves_is_refused() -> None:
    with shared_folder() as folder:
        raised_everywhere(
            pc.InvalidArgument,
            "inside single_process checkpoint_save",
            pc.checkpoint.save,
            1,
            folder / "a",
            write=lambda *_: pc.barrier(),
        )


@CHECKS.on(2)
def a_file_that_is_damaged_is_refused_on_all() -> None:
    with shared_folder() as folder:
        path = folder / "a"
        pc.checkpoint.save(np.arange(1000), path)
        whole = path.read_bytes()
        damaged = {
            "is cut short: the file is empty": b"",
            "is no checkpoint: it begins with b'no'": b"no",
            "is no checkpoint: it begins with b'PK": b"PK\x03\x04" + whole,
            "is cut short: the file ends within its header, .*load another one": whole[:20],
            "is cut short: the file ends within its header": whole[:3],
            "is cut short: .* bytes behind the header instead": whole[:-1],
            "is damaged: .* bytes behind the header instead": whole + b"\0",
            "its checksum is wrong": whole[:-1] + bytes([whole[-1] ^ 1]),
            "has format 2": whole[:8] + b"\2" + whole[9:],
        }
        for why, content in damaged.items():
            pc.barrier()
            if pc.rank() == 0:
                path.write_bytes(content)
            raised_everywhere(pc.InvalidArgument, why, pc.checkpoint.load, path)


@CHECKS.on(2)
def other_formats_are_written_and_read_by_functions() -> None:
    def write(state: Any, file: BinaryIO) -> None:
        file.write(json.dumps(state).encode())

    with shared_folder() as folder:
        pc.checkpoint.save({"rank": pc.rank()}, folder / "a.json", write=write, rank=1)
        assert json.loads((folder / "a.json").read_text()) == {"rank": 1}
        assert pc.checkpoint.load(folder / "a.json", read=json.load, root=1) == {"rank": 1}
        raised_everywhere(pc.InvalidArgument, "load it with read=", pc.checkpoint.load, folder / "a.json")
        raised_everywhere(
            pc.InvalidArgument,
            "what read= returns cannot be sent to the other ranks: obj is a builtins",
            functools.partial(pc.checkpoint.load, read=lambda _: open),
            folder / "a.json",
        )


@CHECKS.on(2)
def torch_state_dicts_come_back_as_they_were() -> None:
    torch = pytest.importorskip("torch")

    def training(seed: int) -> tuple[Any, Any, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def step(model: Any, optimizer: Any, scheduler: Any) -> None:
        optimizer.zero_grad()
        model(torch.arange(6.0).reshape(2, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()

    trained = training(pc.rank())
    step(*trained)
    state = {
        "parts": [each.state_dict() for each in trained],
        "random": torch.get_rng_state(),
        "parameters": dict(trained[0].named_parameters()),
        "epoch": 3,
    }
    formats: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"write": torch.save}, {"read": functools.partial(torch.load, weights_only=True)}),
    ]
    with shared_folder() as folder:
        for write, read in formats:
            pc.checkpoint.save(state, folder / "a", **write)
            loaded = pc.checkpoint.load(folder / "a", **read)
            resumed = training(7)
            for part, saved in zip(resumed, loaded["parts"], strict=True):
                part.load_state_dict(saved)
            step(*resumed)
            reference = training(0)
            step(*reference)
            step(*reference)
            for mine, theirs in zip(resumed[0].parameters(), reference[0].parameters(), strict=True):
                assert torch.equal(mine, theirs)
            assert resumed[2].state_dict() == reference[2].state_dict()
            weight = loaded["parameters"]["0.weight"]
            assert type(weight) is torch.Tensor
            assert not weight.requires_grad


@CHECKS.on(4)
def a_group_and_each_rank_have_files_of_their_own() -> None:
    pair = pc.world().split(pc.rank() // 2)
    alone = pc.world().split(pc.rank())
    assert pair is not None
    with shared_folder() as folder:
        pc.checkpoint.save(pc.rank(), folder / f"pair-{pc.rank() // 2}", rank=1, group=pair)
        assert pc.checkpoint.load(folder / f"pair-{pc.rank() // 2}", group=pair) == pc.rank() // 2 * 2 + 1
        pc.checkpoint.save(pc.rank(), folder / f"rank-{pc.rank()}", group=alone)
        assert pc.checkpoint.load(folder / f"rank-{pc.rank()}", group=alone) == pc.rank()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def ends(child: int, within_s: float) -> bool:
    pidfd = os.pidfd_open(child)
    try:
        return bool(select.select([pidfd], [], [], within_s)[0])
    finally:
        os.close(pidfd)


def kills(times: int, folder: str) -> tuple[int, int]:
    """SIGKILLs a process that saves all the time.

    Returns how many died in a save, and the last loaded step.
    """
    path, luck = os.path.join(folder, "a"), random.Random(times)
    pc.checkpoint.save({"step": 0, "array": np.zeros(10)}, path)
    step, in_a_save = 0, 0
    for _ in range(times):
        come, go = os.pipe()
        if (child := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                saves(path, step, go)
            os._exit(1)
        os.close(go)
        os.read(come, 8)  # it has saved once
        assert not ends(child, within_s=luck.uniform(0, 0.02))  # the random moment of the kill is tested
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        saved = b"".join(iter(lambda: os.read(come, 1 << 16), b""))  # noqa: B023  called at once
        os.close(come)
        known = struct.unpack("<q", saved[-8:])[0] if saved else step + 1
        state = pc.checkpoint.load(path)  # there, and whole
        step = state["step"]
        assert known <= step <= known + 1
        assert (state["array"] == step).all()
        leftovers = set(os.listdir(folder)) - {"a"}
        assert len(leftovers) <= 1  # that of the killed process; earlier ones are removed
        in_a_save += len(leftovers)
    pc.checkpoint.save(state, path)
    assert os.listdir(folder) == ["a"]
    return in_a_save, step


def saves(path: str, step: int, reports: int) -> None:
    for number in itertools.count(step + 1):
        pc.checkpoint.save({"step": number, "array": np.full(number % 7 * 20_000, number)}, path)
        os.write(reports, struct.pack("<q", number))


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    ((in_a_save, step),) = testing.run(kills, 1, KILLS, str(tmp_path), init=False)
    print(f"{KILLS} kills, {in_a_save} of them in a save, {step} saves")
    assert in_a_save > 0


def dies(path: str) -> None:
    def write(state: Any, file: BinaryIO) -> None:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    pc.checkpoint.save("old", path)
    pc.checkpoint.save("new", path, write=write)


def test_the_death_of_the_rank_that_saves_ends_the_waiting(tmp_path: Path) -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(dies, 2, str(tmp_path / "a"), timeout_s=20)
    assert isinstance(caught.value.errors[1].exception, pc.PeerFailure)
    assert pc.checkpoint.load(tmp_path / "a") == "old"
    assert len(list(tmp_path.iterdir())) == 2
    pc.checkpoint.save("new", tmp_path / "a")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_only_leftovers_of_this_path_are_removed(tmp_path: Path) -> None:
    others = [
        ".b.0123456789abcdef.saving",
        ".a.x.0123456789abcdef.saving",
        ".a.saving",
        ".a.0123456789abcdef",
    ]
    for name in [*others, ".a.0123456789abcdef.saving"]:
        (tmp_path / name).touch()
    pc.checkpoint.save(1, tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "a"])


def test_it_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append("folder" if is_folder else f"file of {os.fstat(descriptor).st_size}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("rename"), replace(*names)))
    pc.checkpoint.save(np.zeros(1000), tmp_path / "a")
    assert done == [f"file of {(tmp_path / 'a').stat().st_size}", "rename", "folder"]


def test_two_that_save_to_one_path_do_not_tear_it(tmp_path: Path) -> None:
    def write(state: Any, file: BinaryIO) -> None:
        pc.checkpoint.save("inner", tmp_path / "a")
        file.write(b"outer")

    with pytest.raises(pc.InvalidArgument, match="another save to the same path has begun"):
        pc.checkpoint.save("outer", tmp_path / "a", write=write)
    assert pc.checkpoint.load(tmp_path / "a") == "inner"


def test_alone_read_may_return_anything(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert pc.checkpoint.load(tmp_path / "a", read=lambda file: (file.read(), open)) == (b"x", open)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "last").symlink_to(tmp_path / "runs" / "a")
    pc.checkpoint.save(1, tmp_path / "last")
    pc.checkpoint.save(2, tmp_path / "last")
    assert (tmp_path / "last").is_symlink()
    assert pc.checkpoint.load(tmp_path / "runs" / "a") == 2


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    pc.checkpoint.save(1, tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0o600)
    pc.checkpoint.save(1, tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    (tmp_path / "a").chmod(0o664)
    pc.checkpoint.save(1, tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o664


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(pc.InvalidArgument, match="is no regular file"):
        pc.checkpoint.save(1, tmp_path / "a")
    assert stat.S_ISFIFO((tmp_path / "a").stat().st_mode)
    assert os.listdir(tmp_path) == ["a"]


def test_a_leftover_that_cannot_be_removed_is_left(tmp_path: Path) -> None:
    (tmp_path / ".a.0123456789abcdef.saving").mkdir()  # as that of another user in a folder like /tmp
    pc.checkpoint.save(1, tmp_path / "a")
    assert pc.checkpoint.load(tmp_path / "a") == 1


def test_a_relative_path_is_of_the_moment_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    pc.checkpoint.save("elsewhere", "a", write=lambda state, file: (os.chdir(state), file.write(b"x")))
    assert sorted(os.listdir(tmp_path)) == ["a", "elsewhere"]
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_save_takes_no_copy_of_the_state(tmp_path: Path) -> None:
    state = {"a": np.arange(1 << 20), "b": [np.ones(1 << 20)]}  # 16 MiB
    pc.checkpoint.save(state, tmp_path / "a")  # imports
    tracemalloc.start()
    try:
        pc.checkpoint.save(state, tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    loaded = pc.checkpoint.load(tmp_path / "a")
    np.testing.assert_array_equal(loaded["a"], state["a"])
    np.testing.assert_array_equal(loaded["b"][0], 1)


def test_a_state_that_changes_while_it_is_saved_is_a_whole_file_all_the_same(tmp_path: Path) -> None:
    x = np.zeros(1 << 16)

    class Slow(io.FileIO):
        def write(self, data: Any) -> int:
            x[:] += 1  # another thread
            written = super().write(data)
            x[:] += 1
            return written

    with Slow(tmp_path / "a", "w") as file:
        typed_file.write([x, np.zeros(1 << 16)], file)
    pc.checkpoint.load(tmp_path / "a")  # its checksum is that of what was written


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "a")
    pc.checkpoint.save({"a": 1}, path)
    pc.checkpoint.save({"a": 2}, path)
    assert pc.checkpoint.load(path) == {"a": 2}
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(TypeError, match="not int"):
        pc.checkpoint.load(0)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_arrays_without_numbers_to_save_are_refused_where_they_stand(tmp_path: Path) -> None:
    import jax

    torch = pytest.importorskip("torch")
    with pytest.raises(pc.Unsupported, match="random keys .* pass jax.random.key_data"):
        pc.checkpoint.save({"key": jax.random.key(0)}, tmp_path / "a")
    with pytest.raises(pc.InvalidArgument, match="'meta'"):
        pc.checkpoint.save({"meta": torch.ones(2, device="meta")}, tmp_path / "a")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(pc.InvalidArgument, match="'nested'"):
        pc.checkpoint.save({"nested": nested}, tmp_path / "a")


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        pc.checkpoint.save(1, tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]


def test_what_frameworks_have_is_made_plain() -> None:
    import jax.numpy as jnp

    state = typed_file.plain(OrderedDict(a=[OrderedDict(b=1)], c=(jnp.ones(2),)))
    assert type(state) is dict
    assert type(state["a"][0]) is dict
    assert type(state["c"]) is tuple
    assert type(state["c"][0]) is np.ndarray


def test_a_state_that_holds_itself_is_refused(tmp_path: Path) -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(pc.InvalidArgument, match="holds itself"):
        pc.checkpoint.save(state, tmp_path / "a")
    assert os.listdir(tmp_path) == []
