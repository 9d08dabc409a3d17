"""Checkpoints: they are restored bit for bit, and a damaged one is skipped with a message."""

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
from truedrift.training import Checkpoint, DamagedCheckpoint, checkpoint, latest_checkpoint

RUN = "3f2a"
NAMES = ("ema.safetensors", "generator.safetensors", "manifest.json", "optimizer.safetensors")
OLD, NEW = 7, 12


def build_checkpoint(step):
    """Build a checkpoint of three files; generator and ema differ only in their values."""
    draw = torch.Generator().manual_seed(step)
    weights = {name: {"w": torch.randn(3, 4, generator=draw), "b": torch.randn(4, generator=draw)} for name in "ge"}
    moments = {"exp_avg": torch.randn(3, 4, generator=draw), "step": torch.tensor(float(step))}
    tensors = {"generator": weights["g"], "ema": weights["e"], "optimizer": moments}
    facts = {"metrics_offset": 100 * step, "best": {"step": 1, "fid": 1e-05}, "list": ["é", None, True]}
    return Checkpoint(step, tensors, {**checkpoint.START_FACTS, **facts})


def equal_bits(a, b):
    """Return whether dtype, shape and all bits are equal."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.reshape(-1).view(torch.uint8).tolist() == b.reshape(
        -1
    ).contiguous().view(torch.uint8).tolist()


def equal_checkpoints(a, b):
    return (
        (a.step, a.facts) == (b.step, b.facts)
        and {stem: set(named) for stem, named in a.tensors.items()}
        == {stem: set(named) for stem, named in b.tensors.items()}
        and all(
            equal_bits(a.tensors[stem][name], b.tensors[stem][name]) for stem in a.tensors for name in a.tensors[stem]
        )
    )


@pytest.fixture
def directory(tmp_path):
    """A directory with the checkpoints of two steps."""
    for step in (OLD, NEW):
        checkpoint.save(tmp_path / "checkpoints", build_checkpoint(step), run=RUN)
    return tmp_path / "checkpoints"


def checkpoint_path(directory, step=NEW):
    return directory / checkpoint.directory_name(step)


def flip_bit(path, position, bit):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


# ---- Save and load ----


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
        torch.tensor([0x7FC00001, -1], dtype=torch.int32).view(torch.float32),  # NaNs with a payload
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
def test_every_kind_of_tensor_is_restored_bit_for_bit(tmp_path, tensor):
    saved = Checkpoint(3, {"generator": {"w": tensor.detach()}})
    loaded = checkpoint.load(checkpoint.save(tmp_path, saved, run=RUN), run=RUN)
    assert equal_checkpoints(loaded, saved)
    assert loaded.tensors["generator"]["w"].is_contiguous()


def test_comparison_of_bits_can_fail():
    nan = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert not equal_bits(nan, torch.tensor([float("nan")]))
    assert not equal_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not equal_bits(torch.tensor([1.0]), torch.tensor(1.0))


def test_names_facts_and_step_are_restored(directory):
    found = latest_checkpoint(directory, run=RUN)
    assert equal_checkpoints(found.checkpoint, build_checkpoint(NEW))
    assert not equal_checkpoints(found.checkpoint, build_checkpoint(OLD))
    assert found.skipped == ()
    assert checkpoint.steps(directory) == (OLD, NEW)


def test_shared_tensors_and_empty_files(tmp_path):
    w = torch.arange(6.0)
    loaded = checkpoint.load(
        checkpoint.save(tmp_path, Checkpoint(0, {"a": {"w": w, "tied": w, "part": w[2:4]}, "b": {}}), run=RUN), run=None
    )
    assert {name: tensor.tolist() for name, tensor in loaded.tensors["a"].items()} == {
        "w": w.tolist(),
        "tied": w.tolist(),
        "part": [2.0, 3.0],
    }
    assert loaded.tensors["b"] == {}


def test_loaded_tensors_can_be_changed(directory):
    w = latest_checkpoint(directory, run=RUN).checkpoint.tensors["generator"]["w"]
    w.add_(1.0)
    assert equal_bits(
        checkpoint.load(checkpoint_path(directory), run=RUN).tensors["generator"]["w"],
        build_checkpoint(NEW).tensors["generator"]["w"],
    )


def test_tensors_are_loaded_to_the_given_device(directory):
    found = latest_checkpoint(directory, run=RUN, map_location="meta")
    assert {tensor.device.type for named in found.checkpoint.tensors.values() for tensor in named.values()} == {"meta"}


def test_missing_directory_has_no_checkpoint(tmp_path):
    found = latest_checkpoint(tmp_path / "nothing", run=RUN)
    assert (found.checkpoint, found.skipped, checkpoint.steps(tmp_path / "nothing")) == (None, (), ())


def test_steps_are_sorted_as_numbers(tmp_path):
    for step in (100_000_000, 99_999_999, 5):
        checkpoint.save(tmp_path, Checkpoint(step, {"a": {}}), run=RUN)
    assert checkpoint.steps(tmp_path) == (5, 99_999_999, 100_000_000)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 100_000_000


def test_directories_with_other_names_are_ignored(directory):
    for name in ("step-13", "step-0000000x", "step-000000013", "old-step-00000013", ".writing-step-00000013"):
        shutil.copytree(checkpoint_path(directory), directory / name)
    assert checkpoint.steps(directory) == (OLD, NEW)
    assert latest_checkpoint(directory, run=RUN).skipped == ()


# ---- Files, read without the library ----


def test_manifest_lists_length_and_sha256(directory):
    manifest = json.loads((checkpoint_path(directory) / "manifest.json").read_bytes())
    assert manifest["schema"] == 2
    assert (manifest["run"], manifest["step"], manifest["facts"]) == (RUN, NEW, build_checkpoint(NEW).facts)
    assert sorted(manifest["files"]) == [name for name in NAMES if name != "manifest.json"]
    for name, entry in manifest["files"].items():
        finished = subprocess.run(
            ["sha256sum", checkpoint_path(directory) / name], capture_output=True, text=True, check=True
        )
        assert entry == {
            "sha256": finished.stdout.split()[0],
            "bytes": (checkpoint_path(directory) / name).stat().st_size,
        }
    assert sorted(os.listdir(checkpoint_path(directory))) == sorted(NAMES)
    assert sorted(os.listdir(directory)) == [checkpoint.directory_name(OLD), checkpoint.directory_name(NEW)]


def test_permissions_follow_the_umask(directory):
    mask = os.umask(0)
    os.umask(mask)
    assert checkpoint_path(directory).stat().st_mode & 0o777 == 0o777 & ~mask
    assert {(checkpoint_path(directory) / name).stat().st_mode & 0o777 for name in NAMES} == {0o666 & ~mask}


# ---- Damage ----


def truncate(path, length):
    os.truncate(path, length)


def rewrite_manifest(path, **changes):
    """Change the content of the manifest, with a correct sha256."""
    content = {**json.loads(path.read_bytes()), **changes}
    del content["sha256"]  # to be the last entry
    text = json.dumps(content | {"sha256": "0" * 64}, indent=1)
    path.write_text(text.replace(f'"{"0" * 64}"', f'"{hashlib.sha256(text.encode()).hexdigest()}"'))


def swap_contents(a, b):
    first, second = a.read_bytes(), b.read_bytes()
    assert len(first) == len(second)
    a.write_bytes(second)
    b.write_bytes(first)


def append_byte(path):
    path.write_bytes(path.read_bytes() + b"\n")


def replace_by_directory(path):
    path.unlink()
    path.mkdir()


FILE_DAMAGES = {
    "empty": lambda path: truncate(path, 0),
    "half": lambda path: truncate(path, path.stat().st_size // 2),
    "one byte short": lambda path: truncate(path, path.stat().st_size - 1),
    "one byte long": append_byte,
    "first bit": lambda path: flip_bit(path, 0, 0),
    "middle bit": lambda path: flip_bit(path, path.stat().st_size // 2, 3),
    "last bit": lambda path: flip_bit(path, -1, 7),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": os.unlink,
    "a directory": replace_by_directory,
}


def require_skipped(found, *reasons):
    """Require one message per skipped checkpoint, newest first."""
    assert len(found.skipped) == len(reasons)
    for message, (step, reason) in zip(found.skipped, reasons, strict=True):
        assert message.startswith(f"checkpoint {checkpoint.directory_name(step)} was skipped: ")
        assert reason in message
        assert "\n" not in message


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_checkpoint_with_a_damaged_file_is_skipped_with_message(directory, name, damage):
    FILE_DAMAGES[damage](checkpoint_path(directory) / name)
    found = latest_checkpoint(directory, run=RUN)
    assert equal_checkpoints(found.checkpoint, build_checkpoint(OLD))
    require_skipped(found, (NEW, name))
    with pytest.raises(
        DamagedCheckpoint, match=rf"not a valid checkpoint \(.*{name}.*; its manifest .*; use another"
    ) as caught:
        checkpoint.load(checkpoint_path(directory), run=RUN)
    assert name in caught.value.damage


CHECKPOINT_DAMAGES = {
    "two files swapped": (
        lambda path: swap_contents(path / "generator.safetensors", path / "ema.safetensors"),
        "the content of generator.safetensors is not what was saved",
    ),
    "a file of another step": (
        lambda path: shutil.copy(checkpoint_path(path.parent, OLD) / "ema.safetensors", path),
        "the content of ema.safetensors is not what was saved",
    ),
    "an extra file": (
        lambda path: shutil.copy(path / "ema.safetensors", path / "ema2.safetensors"),
        "ema2.safetensors is there and was not saved with it",
    ),
    "manifest of another step": (
        lambda path: shutil.copy(checkpoint_path(path.parent, OLD) / "manifest.json", path),
        f"manifest.json is of step {OLD}",
    ),
    "manifest of another run": (
        lambda path: rewrite_manifest(path / "manifest.json", run="other"),
        "manifest.json is of run 'other' and not of '3f2a'",
    ),
    "other schema": (
        lambda path: rewrite_manifest(path / "manifest.json", schema=1),
        "its schema version is 1 and this truedrift reads 2",
    ),
    "a file outside": (
        lambda path: rewrite_manifest(path / "manifest.json", files={"../x.safetensors": {"sha256": "", "bytes": 0}}),
        "'../x.safetensors', which is not an allowed",
    ),
    "no files listed": (
        lambda path: rewrite_manifest(path / "manifest.json", files=None),
        "the field 'files' is None",
    ),
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
    "a list": (lambda path: (path / "manifest.json").write_text("[]"), "not what was saved"),
    "deep": (lambda path: (path / "manifest.json").write_text("[" * 100_000), "not what was saved"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
    "nothing in it": (lambda path: (shutil.rmtree(path), path.mkdir()), "manifest.json is missing"),
    "a file in its place": (lambda path: (shutil.rmtree(path), path.write_text("")), "manifest.json cannot be read"),
}


WRONG_FACTS = {
    "metrics_offset": ("x", None, -5, 10**30, 1.0, True),
    "metrics_sha256": (3, ["x"]),
    "skipped": ("x", -1, None),
    "best": (3, {}, [], {"step": 3}, {"step": "x", "fid": 1.0}, {"step": 3, "fid": "x"}, {"step": 3, "fid": None}),
    "metrics": ([1], None, "x"),
    "energy": ("x", None, [1.0], [[1.0], [1.0, 2.0]], [["x"]], [[10**400]], [[True]]),
}
WRONG_MANIFESTS = [
    *(({"facts": {"metrics_offset": 0, "skipped": 0, "best": None}}, "it lacks the fact 'metrics'"),),
    *(({"facts": facts}, "'metrics_offset'" if facts == {} else "'facts' is") for facts in ({}, [], None, "x")),
    *((name, value) for name, values in WRONG_FACTS.items() for value in values),
    *(({"step": step}, "the field 'step' is") for step in ("12", 12.0, -1, None, 10**30)),
    *(({name: float("inf")}, "it is not JSON") for name in ("step", "more")),
    *(({"run": run}, "the field 'run' is") for run in ([1], None, 3)),
    *(
        ({"files": {"ema.safetensors": entry}}, "of ema.safetensors")
        for entry in (3, [], {}, None, {"bytes": "1", "sha256": "x"}, {"bytes": 1, "sha256": 2})
    ),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG_MANIFESTS)
def test_manifest_with_a_right_hash_and_wrong_fields_is_damage(directory, changes, reason):
    """A traceback would end the command, and the checkpoint before it would not be used."""
    if isinstance(changes, str):  # one fact and its value
        changes, reason = {"facts": build_checkpoint(NEW).facts | {changes: reason}}, f"the fact {changes!r} is"
    rewrite_manifest(checkpoint_path(directory) / "manifest.json", **changes)
    found = latest_checkpoint(directory, run=RUN)
    assert equal_checkpoints(found.checkpoint, build_checkpoint(OLD))
    require_skipped(found, (NEW, "manifest.json cannot be used: "))
    assert reason in found.skipped[0]
    assert checkpoint.latest_facts(directory, run=RUN) == build_checkpoint(OLD).facts
    assert checkpoint.latest_valid_step(directory, run=RUN) == OLD


@pytest.mark.parametrize("damage", CHECKPOINT_DAMAGES)
def test_damaged_checkpoint_is_skipped_with_message(directory, damage):
    apply, reason = CHECKPOINT_DAMAGES[damage]
    before = {path: path.read_bytes() for path in checkpoint_path(directory).iterdir()}
    apply(checkpoint_path(directory))
    after = (
        {path: path.read_bytes() for path in checkpoint_path(directory).iterdir()}
        if checkpoint_path(directory).is_dir()
        else None
    )
    assert before != after
    found = latest_checkpoint(directory, run=RUN)
    assert equal_checkpoints(found.checkpoint, build_checkpoint(OLD))
    require_skipped(found, (NEW, reason))


def test_rewritten_manifest_with_the_same_content_is_valid(directory):
    rewrite_manifest(checkpoint_path(directory) / "manifest.json")
    assert latest_checkpoint(directory, run=RUN).checkpoint.step == NEW


def test_file_of_another_format_with_a_correct_hash_is_rejected(directory):
    (checkpoint_path(directory) / "ema.safetensors").write_bytes(b"hello")
    files = json.loads((checkpoint_path(directory) / "manifest.json").read_bytes())["files"]
    files["ema.safetensors"] = {"sha256": hashlib.sha256(b"hello").hexdigest(), "bytes": 5}
    rewrite_manifest(checkpoint_path(directory) / "manifest.json", files=files)
    require_skipped(latest_checkpoint(directory, run=RUN), (NEW, "ema.safetensors is not a safetensors file"))


def test_hidden_files_are_ignored(directory):
    (checkpoint_path(directory) / ".DS_Store").write_text("")
    assert latest_checkpoint(directory, run=RUN).checkpoint.step == NEW


def test_two_damaged_checkpoints_give_two_messages(directory):
    truncate(checkpoint_path(directory, NEW) / "ema.safetensors", 9)
    (checkpoint_path(directory, OLD) / "optimizer.safetensors").unlink()
    found = latest_checkpoint(directory, run=RUN)
    assert found.checkpoint is None
    require_skipped(found, (NEW, "ema.safetensors has 9 bytes"), (OLD, "optimizer.safetensors is missing"))


def test_older_damaged_checkpoint_is_not_verified(directory):
    (checkpoint_path(directory, OLD) / "optimizer.safetensors").unlink()
    found = latest_checkpoint(directory, run=RUN)
    assert (found.checkpoint.step, found.skipped) == (NEW, ())


def test_checkpoints_of_another_run_are_skipped(directory):
    found = latest_checkpoint(directory, run="other")
    assert found.checkpoint is None
    assert len(found.skipped) == 2
    assert checkpoint.load(checkpoint_path(directory), run=None).step == NEW
    with pytest.raises(DamagedCheckpoint, match="is of run '3f2a' and not of 'other'"):
        checkpoint.load(checkpoint_path(directory), run="other")


def test_copy_under_another_name_is_loaded(directory):
    assert checkpoint.load(shutil.copytree(checkpoint_path(directory), directory.parent / "best"), run=RUN).step == NEW


@pytest.fixture(scope="module")
def shared_directory(tmp_path_factory):
    """Two checkpoints for many tests that undo their changes."""
    path = tmp_path_factory.mktemp("shared")
    for step in (OLD, NEW):
        checkpoint.save(path, build_checkpoint(step), run=RUN)
    return path


@given(name=st.sampled_from(NAMES), position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_is_detected(shared_directory, name, position, bit):
    path = checkpoint_path(shared_directory) / name
    position = int(position * path.stat().st_size)
    flip_bit(path, position, bit)
    found = latest_checkpoint(shared_directory, run=RUN)
    flip_bit(path, position, bit)
    assert found.checkpoint.step == OLD
    require_skipped(found, (NEW, name))
    assert latest_checkpoint(shared_directory, run=RUN).checkpoint.step == NEW


def test_every_flipped_bit_of_the_manifest_is_detected(shared_directory):
    path = checkpoint_path(shared_directory) / "manifest.json"
    content = path.read_bytes()
    missed = []
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            try:
                checkpoint.Manifest.from_bytes(bytes(changed))
            except ValueError:
                continue
            missed.append((position, bit))
    assert missed == []


# ---- Save ----


def file_identities(path):
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (path, *path.iterdir())}


def test_saving_again_changes_no_file(directory):
    before = file_identities(checkpoint_path(directory))
    assert checkpoint.save(directory, build_checkpoint(NEW), run=RUN) == checkpoint_path(directory)
    assert file_identities(checkpoint_path(directory)) == before


@pytest.mark.parametrize("leftover", ["flipped", "no manifest", "another run", "a file", "a link"])
def test_invalid_checkpoint_is_replaced(directory, leftover):
    path = checkpoint_path(directory)
    if leftover == "flipped":
        flip_bit(path / "ema.safetensors", -1, 0)
    elif leftover == "no manifest":
        (path / "manifest.json").unlink()
        (path / "junk").mkdir()
    elif leftover == "another run":
        rewrite_manifest(path / "manifest.json", run="other")
    else:
        path.rename(directory / "away")
        path.symlink_to(directory / "nowhere") if leftover == "a link" else path.write_text("x")
    checkpoint.save(directory, build_checkpoint(NEW), run=RUN)
    assert equal_checkpoints(latest_checkpoint(directory, run=RUN).checkpoint, build_checkpoint(NEW))
    assert sorted(os.listdir(path)) == sorted(NAMES)


def test_save_removes_temporary_directories(tmp_path):
    for step in (3, OLD, 10**30):
        (tmp_path / f".writing-{checkpoint.directory_name(step)}").mkdir(parents=True)
    (tmp_path / ".notes").mkdir()
    checkpoint.save(tmp_path, build_checkpoint(OLD), run=RUN)
    assert sorted(os.listdir(tmp_path)) == [".notes", checkpoint.directory_name(OLD)]


@pytest.mark.parametrize("facts", [{"best": float("nan")}, {"best": torch.tensor(1.0)}])
def test_facts_that_are_not_json_are_rejected(directory, facts):
    with pytest.raises(UserError, match="facts of the checkpoint are not JSON"):
        checkpoint.save(directory, Checkpoint(20, {"a": {}}, facts), run=RUN)
    assert sorted(os.listdir(directory)) == [checkpoint.directory_name(OLD), checkpoint.directory_name(NEW)]


@pytest.mark.parametrize("stem", ["../x", "a/b", ".hidden", ""])
def test_file_name_outside_the_directory_is_rejected(directory, stem):
    with pytest.raises(UserError, match="a file of the checkpoint has the name"):
        checkpoint.save(directory, Checkpoint(20, {stem: {}}), run=RUN)
    assert sorted(os.listdir(directory)) == [checkpoint.directory_name(OLD), checkpoint.directory_name(NEW)]


def test_interrupted_save_leaves_no_files(directory, monkeypatch):
    def interrupt(path, content):
        path.write_bytes(content[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_new", interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(directory, build_checkpoint(20), run=RUN)
    assert sorted(os.listdir(directory)) == [checkpoint.directory_name(OLD), checkpoint.directory_name(NEW)]


def test_missing_safetensors_error_names_the_package(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(UserError, match=r"safetensors is not installed; .*pip install 'truedrift\[train\]'"):
        latest_checkpoint(directory, run=RUN)


# ---- Order of writes ----


class Recorder:
    """A list of every write, fsync, rename and unlink, with the file names at that moment."""

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


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc/self/fd, the names of open files")


@linux
def test_save_syncs_every_file_before_the_next_step(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    recorder = Recorder(monkeypatch)
    checkpoint.save(tmp_path / "run" / "checkpoints", build_checkpoint(NEW), run=RUN)
    temporary, final = ".writing-step-00000012", "step-00000012"
    assert recorder.calls == [
        ("fsync", "run"),  # the entry of the directory checkpoints
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
def test_damaged_checkpoint_is_removed_after_the_new_files_are_written(directory, monkeypatch):
    flip_bit(checkpoint_path(directory) / "ema.safetensors", -1, 0)
    recorder = Recorder(monkeypatch)
    checkpoint.save(directory, build_checkpoint(NEW), run=RUN)
    calls = recorder.calls
    removed = calls.index(("unlink", "manifest.json"))
    assert calls[removed - 1] == ("fsync", ".writing-step-00000012")
    assert calls[removed + 1] == ("fsync", "step-00000012")
    assert all(call[0] == "unlink" for call in calls[removed + 2 : removed + 5])
    assert calls[removed + 5][0] == "rename"
