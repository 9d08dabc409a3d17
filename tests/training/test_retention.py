"""Retention: what stays is what was asked for, and always the newest valid checkpoint."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truedrift import storage
from truedrift.errors import UserError
from truedrift.training.checkpoint import Checkpoint, directory_name, latest_checkpoint, prune, save, steps

RUN = "3f2a"


def fill(directory, *those):
    for step in those:
        save(directory, Checkpoint(step, {"generator": {"w": torch.full((3,), float(step))}}), run=RUN)
    return directory


def damage(directory, step):
    os.truncate(directory / directory_name(step) / "generator.safetensors", 20)


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "best", "left"),
    [
        (1, None, None, (60,)),
        (2, None, None, (50, 60)),
        (9, None, None, (10, 20, 30, 40, 50, 60)),
        (1, 20, None, (20, 40, 60)),
        (2, 30, None, (30, 50, 60)),
        (1, None, 20, (20, 60)),
        (1, 30, 20, (20, 30, 60)),
        (1, None, 60, (60,)),
        (1, None, 25, (60,)),  # a best step that is not there
        (1, 7, None, (60,)),
    ],
)
def test_what_stays(tmp_path, keep_last, keep_every, best, left):
    fill(tmp_path, 10, 20, 30, 40, 50, 60)
    removed = prune(tmp_path, keep_last=keep_last, keep_every=keep_every, best=best)
    assert steps(tmp_path) == left
    assert removed == tuple(sorted({10, 20, 30, 40, 50, 60} - set(left)))
    assert sorted(os.listdir(tmp_path)) == [directory_name(step) for step in left]
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 60


def test_step_0_is_a_multiple(tmp_path):
    prune(fill(tmp_path, 0, 1, 2), keep_last=1, keep_every=5, best=None)
    assert steps(tmp_path) == (0, 2)


@settings(max_examples=40)
@given(
    those=st.sets(st.integers(0, 30), max_size=8),
    broken=st.sets(st.integers(0, 30)),
    keep_last=st.integers(1, 4),
    keep_every=st.none() | st.integers(1, 10),
    best=st.none() | st.integers(0, 30),
)
def test_the_newest_valid_one_always_stays(tmp_path_factory, those, broken, keep_last, keep_every, best):
    directory = fill(tmp_path_factory.mktemp("kept"), *those)
    for step in those & broken:
        damage(directory, step)
    prune(directory, keep_last=keep_last, keep_every=keep_every, best=best)
    last = sorted(those, reverse=True)[:keep_last]
    multiples = {step for step in those if keep_every is not None and step % keep_every == 0}
    valid = sorted(those - broken)[-1:]
    assert set(steps(directory)) == {*last, *multiples, *valid, *({best} & those)}
    found = latest_checkpoint(directory, run=RUN).checkpoint
    assert ([] if found is None else [found.step]) == valid


def test_damaged_newer_ones_do_not_cost_the_last_valid_one(tmp_path):
    fill(tmp_path, 1, 2, 3, 4, 5)
    damage(tmp_path, 4)
    damage(tmp_path, 5)
    assert prune(tmp_path, keep_last=2, keep_every=None, best=None) == (1, 2)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 3


def test_nothing_is_read_where_nothing_goes(tmp_path, monkeypatch):
    fill(tmp_path, 1, 2)
    monkeypatch.setattr("truedrift.training.checkpoint.latest_valid_step", lambda directory: pytest.fail("it was read"))
    assert prune(tmp_path, keep_last=2, keep_every=None, best=None) == ()
    with pytest.raises(pytest.fail.Exception, match="it was read"):
        prune(tmp_path, keep_last=1, keep_every=None, best=None)


def test_what_a_crash_left_goes_unless_it_may_be_in_the_making(tmp_path):
    fill(tmp_path, 1, 2, 3, 4)
    for step in (1, 4):
        (tmp_path / directory_name(step) / "manifest.json").unlink()
    assert prune(tmp_path, keep_last=5, keep_every=None, best=None) == ()
    assert sorted(os.listdir(tmp_path)) == [directory_name(step) for step in (2, 3, 4)]
    assert steps(tmp_path) == (2, 3)


def test_the_manifest_goes_first(tmp_path, monkeypatch):
    fill(tmp_path, 1, 2)

    def crash(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.shutil, "rmtree", crash)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path, keep_last=1, keep_every=None, best=None)
    assert os.listdir(tmp_path / directory_name(1)) == ["generator.safetensors"]
    assert steps(tmp_path) == (2,)


def test_no_directory(tmp_path):
    assert prune(tmp_path / "nothing", keep_last=1, keep_every=None, best=None) == ()


def test_what_cannot_be_removed_is_told(tmp_path, monkeypatch):
    fill(tmp_path, 1, 2)

    def refuse(path):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(storage.shutil, "rmtree", refuse)
    with pytest.raises(UserError, match=r"step-00000001' cannot be removed \(Read-only file system\); .*; make it"):
        prune(tmp_path, keep_last=1, keep_every=None, best=None)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 2
