"""`prune` keeps the requested checkpoints, and always the newest valid one."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truedrift import storage
from truedrift.errors import UserError
from truedrift.training import Checkpoint, checkpoint, latest_checkpoint

RUN = "3f2a"


def save_steps(directory, *numbers):
    for step in numbers:
        checkpoint.save(directory, Checkpoint(step, {"generator": {"w": torch.full((3,), float(step))}}), run=RUN)
    return directory


def damage(directory, step):
    os.truncate(directory / checkpoint.directory_name(step) / "generator.safetensors", 20)


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "best", "kept"),
    [
        (1, None, None, (60,)),
        (2, None, None, (50, 60)),
        (9, None, None, (10, 20, 30, 40, 50, 60)),
        (1, 20, None, (20, 40, 60)),
        (2, 30, None, (30, 50, 60)),
        (1, None, 20, (20, 60)),
        (1, 30, 20, (20, 30, 60)),
        (1, None, 60, (60,)),
        (1, None, 25, (60,)),  # a best step that does not exist
        (1, 7, None, (60,)),
    ],
)
def test_kept_steps(tmp_path, keep_last, keep_every, best, kept):
    save_steps(tmp_path, 10, 20, 30, 40, 50, 60)
    removed = checkpoint.prune(tmp_path, keep_last=keep_last, keep_every=keep_every, best=best)
    assert checkpoint.steps(tmp_path) == kept
    assert removed == tuple(sorted({10, 20, 30, 40, 50, 60} - set(kept)))
    assert sorted(os.listdir(tmp_path)) == [checkpoint.directory_name(step) for step in kept]
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 60


def test_step_0_is_a_multiple_of_keep_every(tmp_path):
    checkpoint.prune(save_steps(tmp_path, 0, 1, 2), keep_last=1, keep_every=5, best=None)
    assert checkpoint.steps(tmp_path) == (0, 2)


@settings(max_examples=40)
@given(
    saved=st.sets(st.integers(0, 30), max_size=8),
    damaged=st.sets(st.integers(0, 30)),
    keep_last=st.integers(1, 4),
    keep_every=st.none() | st.integers(1, 10),
    best=st.none() | st.integers(0, 30),
)
def test_newest_valid_checkpoint_is_kept(tmp_path_factory, saved, damaged, keep_last, keep_every, best):
    directory = save_steps(tmp_path_factory.mktemp("kept"), *saved)
    for step in saved & damaged:
        damage(directory, step)
    checkpoint.prune(directory, keep_last=keep_last, keep_every=keep_every, best=best)
    last = sorted(saved, reverse=True)[:keep_last]
    multiples = {step for step in saved if keep_every is not None and step % keep_every == 0}
    valid = sorted(saved - damaged)[-1:]
    assert set(checkpoint.steps(directory)) == {*last, *multiples, *valid, *({best} & saved)}
    found = latest_checkpoint(directory, run=RUN).checkpoint
    assert ([] if found is None else [found.step]) == valid


def test_damaged_newer_checkpoints_do_not_replace_the_last_valid_one(tmp_path):
    save_steps(tmp_path, 1, 2, 3, 4, 5)
    damage(tmp_path, 4)
    damage(tmp_path, 5)
    assert checkpoint.prune(tmp_path, keep_last=2, keep_every=None, best=None) == (1, 2)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 3


def test_checkpoints_are_verified_only_if_one_is_removed(tmp_path, monkeypatch):
    save_steps(tmp_path, 1, 2)
    monkeypatch.setattr(checkpoint, "latest_valid_step", lambda directory: pytest.fail("files were verified"))
    assert checkpoint.prune(tmp_path, keep_last=2, keep_every=None, best=None) == ()
    with pytest.raises(pytest.fail.Exception, match="files were verified"):
        checkpoint.prune(tmp_path, keep_last=1, keep_every=None, best=None)


def test_unfinished_directories_are_removed_except_the_newest(tmp_path):
    save_steps(tmp_path, 1, 2, 3, 4)
    for step in (1, 4):
        (tmp_path / checkpoint.directory_name(step) / "manifest.json").unlink()
    assert checkpoint.prune(tmp_path, keep_last=5, keep_every=None, best=None) == ()
    assert sorted(os.listdir(tmp_path)) == [checkpoint.directory_name(step) for step in (2, 3, 4)]
    assert checkpoint.steps(tmp_path) == (2, 3)


def test_manifest_is_removed_first(tmp_path, monkeypatch):
    save_steps(tmp_path, 1, 2)

    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.shutil, "rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.prune(tmp_path, keep_last=1, keep_every=None, best=None)
    assert os.listdir(tmp_path / checkpoint.directory_name(1)) == ["generator.safetensors"]
    assert checkpoint.steps(tmp_path) == (2,)


def test_prune_of_a_missing_directory(tmp_path):
    assert checkpoint.prune(tmp_path / "nothing", keep_last=1, keep_every=None, best=None) == ()


def test_removal_error_is_reported(tmp_path, monkeypatch):
    save_steps(tmp_path, 1, 2)

    def fail(path):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(storage.shutil, "rmtree", fail)
    with pytest.raises(UserError, match=r"step-00000001' cannot be removed \(Read-only file system\); .*; make it"):
        checkpoint.prune(tmp_path, keep_last=1, keep_every=None, best=None)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 2
