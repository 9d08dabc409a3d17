"""Conversion of pickles: tensors are kept, code is never executed, and a failure leaves no file."""

import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import time
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from truedrift.quarantine import SCALARS, convert, convert_pickle, reader

W = torch.arange(6.0).reshape(2, 3)


class Runs:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.fixture
def no_unpickling(monkeypatch):
    """Fail if this process unpickles instead of the reader process."""

    def refuse(*_, **__):
        pytest.fail("the parent read a pickle")

    for owner, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(owner, name, refuse)


def convert_value(tmp_path, value):
    torch.save(value, tmp_path / "a.pt")
    convert_pickle(tmp_path / "a.pt", tmp_path / "out" / "a.safetensors")
    with safe_open(tmp_path / "out" / "a.safetensors", framework="pt") as file:
        return load_file(tmp_path / "out" / "a.safetensors"), json.loads(file.metadata()[SCALARS])


def test_tensors_and_numbers_get_dotted_names(tmp_path, no_unpickling):
    tied = torch.nn.Parameter(W)
    tensors, plain = convert_value(
        tmp_path,
        {
            "ema": OrderedDict(a=tied, b=tied, c=W.T),  # shared memory, and not contiguous
            "steps": [torch.tensor(3), {"x": W.to(torch.bfloat16)}],
            0: {1: W.long()},
            "step": 7,
            "best": 1.5,
            "name": "small",
            "done": True,
            "none": None,
            "dtype": torch.float16,
        },
    )
    assert set(tensors) == {"ema.a", "ema.b", "ema.c", "steps.0", "steps.1.x", "0.1"}
    assert torch.equal(tensors["ema.a"], W)
    assert torch.equal(tensors["ema.c"], W.T)
    assert (tensors["steps.0"].dtype, tensors["steps.1.x"].dtype) == (torch.int64, torch.bfloat16)
    assert plain == {
        "step": 7,
        "best": 1.5,
        "name": "small",
        "done": True,
        "none": None,
        "dtype": "torch.float16",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.safetensors"]


@pytest.fixture
def reader_in_process(monkeypatch):
    """Run the reader in this process: the same code, without the start of an interpreter and without limits."""

    def run(command, folder, environment):
        output = io.StringIO()
        status = 0
        with contextlib.redirect_stdout(output):
            try:
                reader.main(*command[3:])
            except SystemExit as stop:
                status = stop.code
        return status, output.getvalue().encode(), b""

    monkeypatch.setattr(convert, "_run", run)
    monkeypatch.setattr(reader, "end_with_parent", lambda: None)
    monkeypatch.setattr(reader, "set_resource_limits", lambda size: None)


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


ATTACKS = ["os.system", "subprocess", "exec", "open", "inside"]


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_code_in_a_pickle_is_not_executed(tmp_path, reader_in_process, attack, legacy):
    """Loading as weights only executes nothing, even in the same process."""
    trace = tmp_path / "trace"
    write = f"open({str(trace)!r}, 'w').close()"
    evil = {
        "os.system": Runs(os.system, f"touch {trace}"),
        "subprocess": Runs(subprocess.check_call, ["touch", str(trace)]),
        "exec": Runs(exec, write),
        "open": Runs(open, str(trace), "w"),
        "inside": {"weight": W, "more": [Runs(os.system, f"touch {trace}")]},
    }[attack]
    torch.save(evil, tmp_path / "evil.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"cannot be read as weights \(.*; must hold tensors.* no code; ") as caught:
        convert_pickle(tmp_path / "evil.pt", tmp_path / "new" / "a.safetensors")
    assert list_files(tmp_path) == ["evil.pt"]
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


class Foreign:
    """An object of a class that torch does not know."""


FOREIGN = {
    "object": pickle.dumps(Foreign(), 2),
    "protocol 4": pickle.dumps({"w": [1.0, 2.0]}, 4),
    "protocol 5": pickle.dumps(Foreign(), 5),
    "module": pickle.dumps(torch.nn.Linear(1, 1), 2),
    "text": b"no pickle at all",
    "nothing": b"",
    "archive": b"PK\x03\x04 cut",
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", FOREIGN)
def test_the_unsafe_advice_of_torch_is_not_shown(tmp_path, reader_in_process, name):
    (tmp_path / "a.pt").write_bytes(FOREIGN[name])
    with pytest.raises(ValueError, match=r"cannot be read as weights \(it (is|wants|has) ") as caught:
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    message = str(caught.value).lower()
    for words in ("weights_only", "weights only", "re-run", "trust", "safe_globals", "allowlist", "pytorchstream"):
        assert words not in message


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_torch_gives_unsafe_advice(tmp_path):
    """The control: torch advises to load such a file without protection."""
    (tmp_path / "a.pt").write_bytes(FOREIGN["protocol 4"])
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        torch.load(tmp_path / "a.pt", weights_only=True)


def test_a_malicious_pickle_leaves_no_trace(tmp_path):
    torch.save({"w": W, "more": Runs(os.system, f"touch {tmp_path / 'trace'}")}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"it wants to call \w+\.system\); must hold tensors.* no code; ") as caught:
        convert_pickle(tmp_path / "evil.pt", tmp_path / "new" / "a.safetensors")
    assert list_files(tmp_path) == ["evil.pt"]
    assert "\n" not in str(caught.value)


def test_the_malicious_pickle_works_without_protection(tmp_path):
    """The control: the same pickle, read the usual way, leaves a trace."""
    trace = tmp_path / "trace"
    torch.save(Runs(os.system, f"touch {trace}"), tmp_path / "evil.pt")
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert trace.exists()


def cyclic():
    value = {"w": W}
    value["again"] = value
    return value


def doubling():
    value = {"w": W}
    for _ in range(11):
        value = {str(i): value for i in range(4)}
    return value


BAD = {
    "no tensors": ({"step": 3}, "it has no tensors"),
    "a word": ("hello", "it has no tensors"),
    "cyclic": (cyclic(), "nested deeper than"),
    "unfolding": (doubling(), "more than 1000 entries"),
    "twice": ({"a": {"b": W}, "a.b": W}, "two entries named a.b"),
    "sparse": ({"w": W.to_sparse()}, "w is not a plain tensor"),
    "bytes": ({"w": W, "raw": b"abc"}, "raw is a bytes"),
    "keys": ({"w": W, (1, 2): 3}, "a key of type tuple"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_object_that_is_not_a_state_dict_is_rejected(tmp_path, reader_in_process, monkeypatch, name):
    monkeypatch.setattr(reader, "MAX_ENTRIES", 1000)
    value, message = BAD[name]
    torch.save(value, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=rf"cannot be read as weights \(.*{message}"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert list_files(tmp_path) == ["a.pt"]


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path):
    torch.save({"w": torch.zeros(1).expand(1 << 36)}, tmp_path / "a.pt")  # 256 GiB of one number
    with pytest.raises(ValueError, match=r"cannot be read as weights \(w is larger than its stored values"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert list_files(tmp_path) == ["a.pt"]


def test_many_tensors_of_one_storage_are_refused(tmp_path):
    """Each fits its storage of 4 MB; together they would take 4 GB."""
    w = torch.zeros(1 << 20)
    torch.save({str(number): w for number in range(1000)}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"cannot be read as weights \(its tensors are much larger than the file"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    torch.save({"embedding": w, "head": w}, tmp_path / "a.pt")  # tied weights
    convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")


def test_the_reader_ends_with_its_parent(tmp_path):
    """The parent is killed while its reader waits for a FIFO, as it would for a file on a slow disk."""
    os.mkfifo(tmp_path / "a.pt")
    script = (
        "import sys; from pathlib import Path; from truedrift.quarantine import convert\n"
        "convert._run_reader(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.pt"), str(tmp_path / "tensors.safetensors")]
    with subprocess.Popen(command) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        deadline = time.monotonic() + 60
        while not (found := children.read_text().split()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(1)  # the reader starts its thread
        parent.kill()
    while Path(f"/proc/{found[0]}").exists() and "Z" not in Path(f"/proc/{found[0]}/stat").read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("content", [b"", b"no pickle at all", b"PK\x03\x04 cut", pickle.dumps([1, 2])[:-1]])
def test_a_damaged_file_is_rejected(tmp_path, reader_in_process, content):
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.pt' cannot be read as weights \(.+\); .*; ") as caught:
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert "\n" not in str(caught.value)
    assert list_files(tmp_path) == ["a.pt"]


def test_a_slow_reader_is_stopped(tmp_path, monkeypatch):
    torch.save({"w": W}, tmp_path / "a.pt")
    monkeypatch.setattr(convert, "LIMIT_SECONDS", 0.01)
    with pytest.raises(ValueError, match=r"reading took longer than 0\.01 seconds"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert list_files(tmp_path) == ["a.pt"]


def test_a_crash_of_the_reader_is_reported(tmp_path, monkeypatch):
    torch.save({"w": W}, tmp_path / "a.pt")
    (tmp_path / "aborts.py").write_text("import os; os.abort()")
    monkeypatch.setattr(reader, "__file__", str(tmp_path / "aborts.py"))
    with pytest.raises(ValueError, match="its reader ended with status -6"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")


def test_the_reader_does_not_see_the_environment(tmp_path, monkeypatch):
    torch.save({"w": W}, tmp_path / "a.pt")
    (tmp_path / "prints.py").write_text("import os, sys; sys.exit(' '.join(sorted(os.environ)) + os.getcwd())")
    monkeypatch.setattr(reader, "__file__", str(tmp_path / "prints.py"))
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with pytest.raises(ValueError, match=r"OMP_NUM_THREADS.*\.truedrift-") as caught:
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert "SECRET_TOKEN" not in str(caught.value)


def test_safetensors_are_copied(tmp_path):
    save_file({"w": W}, tmp_path / "a.safetensors")
    convert_pickle(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "c.safetensors").write_bytes(pickle.dumps(1))
    with pytest.raises(ValueError, match="cannot be read as weights"):
        convert_pickle(tmp_path / "c.safetensors", tmp_path / "d.safetensors")
    assert list_files(tmp_path) == ["a.safetensors", "b.safetensors", "c.safetensors"]


def test_an_older_result_is_replaced_only_by_a_complete_one(tmp_path, reader_in_process):
    save_file({"old": W}, tmp_path / "b.safetensors")
    (tmp_path / "a.pt").write_bytes(b"broken")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert set(load_file(tmp_path / "b.safetensors")) == {"old"}
    torch.save({"new": W}, tmp_path / "a.pt")
    convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert set(load_file(tmp_path / "b.safetensors")) == {"new"}


def test_a_storage_smaller_than_its_tensor_is_rejected(tmp_path, reader_in_process):
    torch.save({"w": torch.zeros(1000)}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "a.pt", "w") as cut:
        for entry in whole.infolist():
            content = whole.read(entry)
            cut.writestr(entry.filename, content[: len(content) // 2] if "/data/" in entry.filename else content)
    (tmp_path / "whole.pt").unlink()
    with pytest.raises(ValueError, match="cannot be read as weights"):
        convert_pickle(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert list_files(tmp_path) == ["a.pt"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.pt", "does not exist"),
        ("folder.pt", "is a directory"),
        ("a.zip", "ends in"),
        ("a", "has no ext"),
    ],
)
def test_a_path_that_is_not_a_checkpoint_is_rejected(tmp_path, name, message):
    (tmp_path / "folder.pt").mkdir()
    for other in ("a.zip", "a"):
        (tmp_path / other).write_bytes(b"x")
    with pytest.raises(ValueError, match=rf"{message}.*; must be a file that ends in \.pt, .*; "):
        convert_pickle(tmp_path / name, tmp_path / "b.safetensors")


def test_an_unwritable_target_is_reported_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "_run_reader", lambda *_: pytest.fail("the file was read"))
    torch.save({"w": W}, tmp_path / "a.pt")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot be written \(.*\); "):
        convert_pickle(tmp_path / "a.pt", tmp_path / "file" / "b.safetensors")
