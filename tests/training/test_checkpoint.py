"""Checkpoints: what was saved comes back bit for bit, and whatever is not as it was saved is passed over and told."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truedrift.errors import UserError
from truedrift.training import checkpoint as module
from truedrift.training.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    Manifest,
    directory_name,
    latest_checkpoint,
    load,
    save,
    steps,
)

RUN = "3f2a"
NAMES = ("ema.safetensors", "generator.safetensors", "manifest.json", "optimizer.safetensors")
OLD, NEW = 7, 12


def state(step):
    """Three files; generator and ema have the same names, shapes and sizes, so that only contents tell them apart."""
    draw = torch.Generator().manual_seed(step)
    weights = {name: {"w": torch.randn(3, 4, generator=draw), "b": torch.randn(4, generator=draw)} for name in "ge"}
    moments = {"exp_avg": torch.randn(3, 4, generator=draw), "step": torch.tensor(float(step))}
    tensors = {"generator": weights["g"], "ema": weights["e"], "optimizer": moments}
    return Checkpoint(step, tensors, {"metrics_offset": 100 * step, "best": 1e-05, "run of": ["é", None, True]})


def same(a, b):
    """Bit for bit, and of the same type and shape."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.reshape(-1).view(torch.uint8).tolist() == b.reshape(
        -1
    ).contiguous().view(torch.uint8).tolist()


def identical(a, b):
    return (
        (a.step, a.facts) == (b.step, b.facts)
        and {stem: set(named) for stem, named in a.tensors.items()}
        == {stem: set(named) for stem, named in b.tensors.items()}
        and all(same(a.tensors[stem][name], b.tensors[stem][name]) for stem in a.tensors for name in a.tensors[stem])
    )


@pytest.fixture
def two(tmp_path):
    """A directory with the checkpoints of two steps."""
    for step in (OLD, NEW):
        save(tmp_path / "checkpoints", state(step), run=RUN)
    return tmp_path / "checkpoints"


def of(directory, step=NEW):
    return directory / directory_name(step)


def flip(path, position, bit):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


# --- what was saved comes back


SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 3.4028235e38, 0.1]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(SPECIAL),
        torch.tensor(SPECIAL, dtype=torch.float64),
        torch.tensor(SPECIAL).to(torch.bfloat16),
        torch.tensor(SPECIAL).to(torch.float16),
        torch.tensor([2**63 - 1, -(2**63), 0]),
        torch.tensor([-(2**31), 5], dtype=torch.int32),
        torch.tensor([255, 0, 7], dtype=torch.uint8),
        torch.tensor([True, False, True]),
        torch.tensor([0x7FC00001, -1], dtype=torch.int32).view(torch.float32),  # NaNs with a message
        torch.tensor(0.1, dtype=torch.float64),
        torch.tensor(7),
        torch.tensor(True),
        torch.zeros(0),
        torch.zeros(3, 0, 2, dtype=torch.bfloat16),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::5],
        torch.tensor([1.5]).expand(4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.nn.Parameter(torch.tensor([1.0, 2.0])),
    ],
    ids=lambda t: f"{str(t.dtype)[6:]}{list(t.shape)}",
)
def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path, tensor):
    saved = Checkpoint(3, {"generator": {"w": tensor.detach()}})
    back = load(save(tmp_path, saved, run=RUN), run=RUN)
    assert identical(back, saved)
    assert back.tensors["generator"]["w"].is_contiguous()


def test_the_comparison_of_bits_can_fail():
    nan = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert not same(nan, torch.tensor([float("nan")]))
    assert not same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same(torch.tensor([1.0]), torch.tensor(1.0))


def test_names_facts_and_step_come_back(two):
    found = latest_checkpoint(two, run=RUN)
    assert identical(found.checkpoint, state(NEW))
    assert not identical(found.checkpoint, state(OLD))
    assert found.skipped == ()
    assert steps(two) == (OLD, NEW)


def test_shared_and_no_tensors(tmp_path):
    w = torch.arange(6.0)
    back = load(save(tmp_path, Checkpoint(0, {"a": {"w": w, "tied": w, "part": w[2:4]}, "b": {}}), run=RUN), run=None)
    assert {name: tensor.tolist() for name, tensor in back.tensors["a"].items()} == {
        "w": w.tolist(),
        "tied": w.tolist(),
        "part": [2.0, 3.0],
    }
    assert back.tensors["b"] == {}


def test_what_comes_back_can_be_trained_on(two):
    w = latest_checkpoint(two, run=RUN).checkpoint.tensors["generator"]["w"]
    w.add_(1.0)
    assert same(load(of(two), run=RUN).tensors["generator"]["w"], state(NEW).tensors["generator"]["w"])


def test_tensors_go_where_they_are_wanted(two):
    found = latest_checkpoint(two, run=RUN, map_location="meta")
    assert {tensor.device.type for named in found.checkpoint.tensors.values() for tensor in named.values()} == {"meta"}


def test_no_directory_is_no_checkpoint(tmp_path):
    found = latest_checkpoint(tmp_path / "nothing", run=RUN)
    assert (found.checkpoint, found.skipped, steps(tmp_path / "nothing")) == (None, (), ())


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (100_000_000, 99_999_999, 5):
        save(tmp_path, Checkpoint(step, {"a": {}}), run=RUN)
    assert steps(tmp_path) == (5, 99_999_999, 100_000_000)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 100_000_000


def test_other_names_are_no_checkpoints(two):
    for name in ("step-13", "step-0000000x", "step-000000013", "old-step-00000013", ".writing-step-00000013-1"):
        shutil.copytree(of(two), two / name)
    assert steps(two) == (OLD, NEW)
    assert latest_checkpoint(two, run=RUN).skipped == ()


# --- the files, read without the library


def test_the_manifest_lists_length_and_sha256(two):
    listed = json.loads((of(two) / "manifest.json").read_bytes())
    assert listed["schema"] == 1
    assert (listed["run"], listed["step"], listed["facts"]) == (RUN, NEW, state(NEW).facts)
    assert sorted(listed["files"]) == [name for name in NAMES if name != "manifest.json"]
    for name, entry in listed["files"].items():
        done = subprocess.run(["sha256sum", of(two) / name], capture_output=True, text=True, check=True)
        assert entry == {"sha256": done.stdout.split()[0], "bytes": (of(two) / name).stat().st_size}
    assert sorted(os.listdir(of(two))) == sorted(NAMES)
    assert sorted(os.listdir(two)) == [directory_name(OLD), directory_name(NEW)]


def test_rights_are_those_of_the_umask(two):
    mask = os.umask(0)
    os.umask(mask)
    assert of(two).stat().st_mode & 0o777 == 0o777 & ~mask
    assert {(of(two) / name).stat().st_mode & 0o777 for name in NAMES} == {0o666 & ~mask}


# --- whatever is damaged is passed over


def cut_to(path, length):
    os.truncate(path, length)


def resealed(path, **changes):
    """The manifest with other content and a sha256 that is right for it."""
    content = {**json.loads(path.read_bytes()), **changes}
    content.pop("sha256")
    text = json.dumps(content, sort_keys=True, indent=1) + "\n"
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")


def swap(a, b):
    first, second = a.read_bytes(), b.read_bytes()
    assert len(first) == len(second)
    a.write_bytes(second)
    b.write_bytes(first)


def longer(path):
    path.write_bytes(path.read_bytes() + b"\n")


def replaced_by_directory(path):
    path.unlink()
    path.mkdir()


OF_A_FILE = {
    "empty": lambda path: cut_to(path, 0),
    "half": lambda path: cut_to(path, path.stat().st_size // 2),
    "one byte short": lambda path: cut_to(path, path.stat().st_size - 1),
    "one byte long": longer,
    "first bit": lambda path: flip(path, 0, 0),
    "middle bit": lambda path: flip(path, path.stat().st_size // 2, 3),
    "last bit": lambda path: flip(path, -1, 7),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": os.unlink,
    "a directory": replaced_by_directory,
}


def told(found, directory, *reasons):
    """One sentence for each, newest first."""
    assert len(found.skipped) == len(reasons)
    for sentence, (step, reason) in zip(found.skipped, reasons, strict=True):
        assert sentence.startswith(f"checkpoint {directory_name(step)} was skipped: ")
        assert reason in sentence
        assert "\n" not in sentence


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", OF_A_FILE)
def test_a_damaged_file_is_found_and_the_checkpoint_before_it_used(two, name, damage):
    OF_A_FILE[damage](of(two) / name)
    found = latest_checkpoint(two, run=RUN)
    assert identical(found.checkpoint, state(OLD))
    told(found, two, (NEW, name))
    with pytest.raises(
        DamagedCheckpoint, match=rf"not a valid checkpoint \(.*{name}.*; its manifest .*; use another"
    ) as caught:
        load(of(two), run=RUN)
    assert name in caught.value.damage


OF_A_CHECKPOINT = {
    "two files swapped": (
        lambda path: swap(path / "generator.safetensors", path / "ema.safetensors"),
        "the content of ema.safetensors is not what was saved",
    ),
    "a file of another step": (
        lambda path: shutil.copy(of(path.parent, OLD) / "ema.safetensors", path),
        "the content of ema.safetensors is not what was saved",
    ),
    "an extra file": (
        lambda path: shutil.copy(path / "ema.safetensors", path / "ema2.safetensors"),
        "ema2.safetensors is there and was not saved with it",
    ),
    "manifest of another step": (
        lambda path: shutil.copy(of(path.parent, OLD) / "manifest.json", path),
        f"manifest.json is of step {OLD}",
    ),
    "manifest of another run": (
        lambda path: resealed(path / "manifest.json", run="other"),
        "manifest.json is of run 'other' and not of '3f2a'",
    ),
    "other schema": (
        lambda path: resealed(path / "manifest.json", schema=2),
        "its schema version is 2 and this truedrift reads 1",
    ),
    "a file outside": (
        lambda path: resealed(path / "manifest.json", files={"../x.safetensors": {"sha256": "", "bytes": 0}}),
        "'../x.safetensors', which is not an allowed",
    ),
    "no files listed": (lambda path: resealed(path / "manifest.json", files=None), "lacks a field of a manifest"),
    "changed facts": (
        lambda path: (path / "manifest.json").write_bytes(
            (path / "manifest.json").read_bytes().replace(b'"metrics_offset": 1200', b'"metrics_offset": 1100')
        ),
        "its content is not what was saved",
    ),
    "the same number in other letters": (
        lambda path: (path / "manifest.json").write_bytes(
            (path / "manifest.json").read_bytes().replace(b"1e-05", b"1E-05")
        ),
        "its content is not what was saved",
    ),
    "a list": (lambda path: (path / "manifest.json").write_text("[]"), "not a JSON object"),
    "deep": (lambda path: (path / "manifest.json").write_text("[" * 100_000), "not JSON"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
    "nothing in it": (lambda path: (shutil.rmtree(path), path.mkdir()), "manifest.json is missing"),
    "a file in its place": (lambda path: (shutil.rmtree(path), path.write_text("")), "manifest.json cannot be read"),
}


@pytest.mark.parametrize("damage", OF_A_CHECKPOINT)
def test_a_damaged_checkpoint_is_found_and_the_one_before_it_used(two, damage):
    apply, reason = OF_A_CHECKPOINT[damage]
    before = {path: path.read_bytes() for path in of(two).iterdir()}
    apply(of(two))
    after = {path: path.read_bytes() for path in of(two).iterdir()} if of(two).is_dir() else None
    assert before != after
    found = latest_checkpoint(two, run=RUN)
    assert identical(found.checkpoint, state(OLD))
    told(found, two, (NEW, reason))


def test_resealing_alone_is_no_damage(two):
    resealed(of(two) / "manifest.json")
    assert latest_checkpoint(two, run=RUN).checkpoint.step == NEW


def test_a_forged_file_with_the_right_sum_is_still_no_checkpoint(two):
    (of(two) / "ema.safetensors").write_bytes(b"hello")
    listed = json.loads((of(two) / "manifest.json").read_bytes())["files"]
    listed["ema.safetensors"] = {"sha256": hashlib.sha256(b"hello").hexdigest(), "bytes": 5}
    resealed(of(two) / "manifest.json", files=listed)
    told(latest_checkpoint(two, run=RUN), two, (NEW, "ema.safetensors is not a safetensors file"))


def test_hidden_files_do_no_harm(two):
    (of(two) / ".DS_Store").write_text("")
    assert latest_checkpoint(two, run=RUN).checkpoint.step == NEW


def test_both_damaged_gives_none_and_two_reasons(two):
    cut_to(of(two, NEW) / "ema.safetensors", 9)
    (of(two, OLD) / "optimizer.safetensors").unlink()
    found = latest_checkpoint(two, run=RUN)
    assert found.checkpoint is None
    told(found, two, (NEW, "ema.safetensors has 9 bytes"), (OLD, "optimizer.safetensors is missing"))


def test_an_older_damage_is_not_looked_at(two):
    (of(two, OLD) / "optimizer.safetensors").unlink()
    found = latest_checkpoint(two, run=RUN)
    assert (found.checkpoint.step, found.skipped) == (NEW, ())


def test_another_run_finds_nothing_and_any_run_everything(two):
    found = latest_checkpoint(two, run="other")
    assert found.checkpoint is None
    assert len(found.skipped) == 2
    assert load(of(two), run=None).step == NEW
    with pytest.raises(DamagedCheckpoint, match="is of run '3f2a' and not of 'other'"):
        load(of(two), run="other")


def test_a_copy_under_another_name_can_be_loaded(two):
    assert load(shutil.copytree(of(two), two.parent / "best"), run=RUN).step == NEW


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Two checkpoints for many flips, each taken back."""
    directory = tmp_path_factory.mktemp("kept")
    for step in (OLD, NEW):
        save(directory, state(step), run=RUN)
    return directory


@given(name=st.sampled_from(NAMES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(kept, name, place, bit):
    path = of(kept) / name
    position = int(place * path.stat().st_size)
    flip(path, position, bit)
    found = latest_checkpoint(kept, run=RUN)
    flip(path, position, bit)
    assert found.checkpoint.step == OLD
    told(found, kept, (NEW, name))
    assert latest_checkpoint(kept, run=RUN).checkpoint.step == NEW


def test_no_bit_of_the_manifest_goes_unnoticed(kept):
    path = of(kept) / "manifest.json"
    whole = path.read_bytes()
    missed = []
    for position in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            try:
                Manifest.from_bytes(bytes(changed))
            except ValueError:
                continue
            missed.append((position, bit))
    assert missed == []


# --- saving


def snapshot(path):
    return {each.name: (each.stat().st_ino, each.stat().st_mtime_ns) for each in (path, *path.iterdir())}


def test_saving_again_changes_nothing(two):
    before = snapshot(of(two))
    assert save(two, state(NEW), run=RUN) == of(two)
    assert snapshot(of(two)) == before


@pytest.mark.parametrize("leftover", ["flipped", "no manifest", "another run", "a file", "a link"])
def test_an_invalid_leftover_is_replaced(two, leftover):
    path = of(two)
    if leftover == "flipped":
        flip(path / "ema.safetensors", -1, 0)
    elif leftover == "no manifest":
        (path / "manifest.json").unlink()
        (path / "junk").mkdir()
    elif leftover == "another run":
        resealed(path / "manifest.json", run="other")
    else:
        path.rename(two / "away")
        path.symlink_to(two / "nowhere") if leftover == "a link" else path.write_text("x")
    save(two, state(NEW), run=RUN)
    assert identical(latest_checkpoint(two, run=RUN).checkpoint, state(NEW))
    assert sorted(os.listdir(path)) == sorted(NAMES)


def test_save_removes_temporary_directories(tmp_path):
    for pid in (1, os.getpid(), 10**30):
        (tmp_path / f".writing-step-00000003-{pid}").mkdir(parents=True)
    (tmp_path / ".writing-something").mkdir()
    save(tmp_path, state(OLD), run=RUN)
    assert sorted(os.listdir(tmp_path)) == [".writing-something", directory_name(OLD)]


@pytest.mark.parametrize("facts", [{"best": float("nan")}, {"best": torch.tensor(1.0)}, {1: 1, "a": 2}])
def test_facts_that_are_not_json_are_refused_and_leave_nothing(two, facts):
    with pytest.raises(UserError, match="facts of the checkpoint are not JSON"):
        save(two, Checkpoint(20, {"a": {}}, facts), run=RUN)
    assert sorted(os.listdir(two)) == [directory_name(OLD), directory_name(NEW)]


@pytest.mark.parametrize("stem", ["../x", "a/b", ".hidden", ""])
def test_files_stay_in_the_directory(two, stem):
    with pytest.raises(UserError, match="a file of the checkpoint has the name"):
        save(two, Checkpoint(20, {stem: {}}), run=RUN)
    assert sorted(os.listdir(two)) == [directory_name(OLD), directory_name(NEW)]


def test_an_interruption_of_saving_leaves_nothing(two, monkeypatch):
    def interrupt(path, content):
        path.write_bytes(content[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(two, state(20), run=RUN)
    assert sorted(os.listdir(two)) == [directory_name(OLD), directory_name(NEW)]


def test_without_safetensors_it_says_what_to_install(two, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(UserError, match=r"safetensors is not installed; .*pip install 'truedrift\[train\]'"):
        latest_checkpoint(two, run=RUN)


# --- the order on the disk


class Recorder:
    """Every write, fsync and rename, by the names at that moment."""

    def __init__(self, monkeypatch):
        self.calls = []
        fsync, replace, write, unlink = os.fsync, os.replace, os.write, os.unlink

        def name(descriptor):
            return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

        def recording_fsync(descriptor):
            self.calls.append(("fsync", name(descriptor)))
            fsync(descriptor)

        def recording_write(descriptor, content):
            self.calls.append(("write", name(descriptor)))
            return write(descriptor, content)

        def recording_replace(source, target):
            self.calls.append(("rename", Path(source).name, Path(target).name))
            replace(source, target)

        def recording_unlink(path, **options):
            self.calls.append(("unlink", Path(path).name))
            unlink(path, **options)

        monkeypatch.setattr(os, "fsync", recording_fsync)
        monkeypatch.setattr(os, "write", recording_write)
        monkeypatch.setattr(os, "replace", recording_replace)
        monkeypatch.setattr(os, "unlink", recording_unlink)


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")


@linux
def test_everything_is_on_the_disk_before_the_next_thing_depends_on_it(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    recorder = Recorder(monkeypatch)
    save(tmp_path / "run" / "checkpoints", state(NEW), run=RUN)
    temporary, final = f".writing-step-00000012-{os.getpid()}", "step-00000012"
    assert recorder.calls == [
        ("fsync", "run"),  # the name of checkpoints
        ("write", "generator.safetensors"),
        ("fsync", "generator.safetensors"),
        ("write", "ema.safetensors"),
        ("fsync", "ema.safetensors"),
        ("write", "optimizer.safetensors"),
        ("fsync", "optimizer.safetensors"),
        ("fsync", temporary),
        ("rename", temporary, final),
        ("fsync", "checkpoints"),
        ("write", ".manifest.json.writing"),
        ("fsync", ".manifest.json.writing"),
        ("rename", ".manifest.json.writing", "manifest.json"),
        ("fsync", final),
    ]


@linux
def test_a_damaged_leftover_goes_only_when_the_new_one_is_written(two, monkeypatch):
    flip(of(two) / "ema.safetensors", -1, 0)
    recorder = Recorder(monkeypatch)
    save(two, state(NEW), run=RUN)
    calls = recorder.calls
    removed = calls.index(("unlink", "manifest.json"))
    assert calls[removed - 1] == ("fsync", f".writing-step-00000012-{os.getpid()}")
    assert calls[removed + 1] == ("fsync", "step-00000012")
    assert all(call[0] == "unlink" for call in calls[removed + 2 : removed + 5])
    assert calls[removed + 5][0] == "rename"
