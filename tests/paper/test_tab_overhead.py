"""The study `tab:overhead`: what is measured, in which order."""

import gc
import json
import mmap
import sys
from types import SimpleNamespace

import pytest
import torch

from truedrift.grids import StudyOptions
from truedrift.paper import overhead_worker, tab_overhead
from truedrift.progress import no_progress
from truedrift.recipes import overrides
from truedrift.records import append, read
from truedrift.training import Parts, build_setup, load_samples

ANSWERS = """
import json, sys
config = json.load(open(sys.argv[1]))
abc, compiled = config["objective"]["estimator_pos"] == "abc", config["engine"]["compiled"]
log, epochs = sys.argv[2], 0
for line in sys.stdin:
    with open(log, "a") as file:
        file.write(f"{'compiled' if compiled else 'eager'} {'abc' if abc else 'standard'} {line}")
    if line == "epoch\\n":
        epochs += 1
        print(100 * compiled + 10 * abc + epochs, flush=True)
    else:
        answer = {"memory_megabytes": 5.0 + abc, "parameters": 889248, "device": "cpu", "threads": 2}
        print(json.dumps(answer), flush=True)
"""
"""A program that answers like a measurement, with different numbers for each configuration."""


@pytest.fixture
def answered(monkeypatch, tmp_path):
    """Replace the measurement by that program; return the file of its requests."""
    program = tmp_path / "answers.py"
    program.write_text(ANSWERS)
    log = tmp_path / "log"
    monkeypatch.setattr(
        tab_overhead, "_command", lambda config, device: [sys.executable, str(program), str(config), str(log)]
    )
    return log


def test_processes_of_a_pair_alternate_epochs(answered, tmp_path):
    calls = []
    record = tab_overhead.study(
        StudyOptions(scale="smoke", device="cpu", progress=lambda *progress: calls.append(progress))
    )
    pairs = [("standard", False), ("abc", False), ("standard", True), ("abc", True)]
    assert [(cost.estimator, cost.compiled) for cost in record.costs] == pairs
    assert [cost.epoch_seconds for cost in record.costs] == [(2, 3), (12, 13), (102, 103), (112, 113)]  # not the first
    assert [cost.memory_megabytes for cost in record.costs] == [5, 6, 5, 6]
    assert (record.data, record.recipe, record.n, record.steps_per_epoch) == ("digits", "digits", 8, 100)
    assert (record.device, record.threads) == ("cpu", 2)
    turn = ["eager standard epoch", "eager abc epoch"]
    assert answered.read_text().splitlines()[:8] == [*turn * 3, "eager standard end", "eager abc end"]
    assert calls == [("tab:overhead", k, 12) for k in range(1, 13)]
    append(tmp_path / "records.jsonl", record)
    assert read(tmp_path / "records.jsonl", tab_overhead.Overhead) == [record]


def test_ten_epochs_at_other_scales(answered):
    assert [len(cost.epoch_seconds) for cost in tab_overhead.study(StudyOptions(device="cpu")).costs] == [10] * 4


def test_the_paper_measures_cifar10_at_8():
    found = tab_overhead.configs(StudyOptions(scale="paper"))
    assert {(config.recipe, config.batch.n, config.seed) for config in found} == {("cifar10", 8, 42)}


def test_failed_process_is_an_error_with_its_last_line(monkeypatch):
    ends = [sys.executable, "-c", "import sys; sys.exit('no compiler found')"]
    monkeypatch.setattr(tab_overhead, "_command", lambda config, device: ends)
    with pytest.raises(ValueError, match=r"a measurement ended with status 1 \(no compiler found\); .*; .*"):
        tab_overhead.study(StudyOptions(scale="smoke"))


def small(estimator):
    settings = ("generator.width=16", "generator.depth=1", "cadence.steps_per_epoch=3", "batch.n=4")
    return overrides.recipe("digits", given={"estimator": estimator}, settings=settings)


def test_epoch_counts_steps_and_memory_counts_growth(monkeypatch):
    taken, held = [], []

    def counting(*arguments):
        assembly = build_setup(*arguments)

        def step(number):
            taken.append(number)
            pages = mmap.mmap(-1, 48 * 2**20)  # of the system, since malloc first gives what it still holds
            pages[:: mmap.PAGESIZE] = bytes(len(pages) // mmap.PAGESIZE)
            held.append(pages)

        return type("Assembly", (), {"step": staticmethod(step), "state": assembly.state})

    monkeypatch.setattr(overhead_worker, "build_setup", counting)
    gc.collect()
    measurement = overhead_worker.Measurement(small("abc"), torch.device("cpu"))
    assert measurement.epoch() > 0
    assert measurement.epoch() > 0
    assert taken == list(range(6))
    answer = measurement.end()
    assert answer["memory_megabytes"] == pytest.approx(288, abs=4)
    label, first, layer, last = 11 * 32, 128 * 16 + 16, 16 + 16 * 16 + 16, 16 * 64 + 64
    assert answer["parameters"] == label + first + layer + 16 + last
    assert (answer["device"], answer["threads"]) == ("cpu", torch.get_num_threads())


def test_mps_reports_driver_memory_and_synchronizes(monkeypatch):
    """With a replaced mps module, whose driver releases memory after the second epoch."""
    held, waited = iter([3 * 2**20, 5 * 2**20, 4 * 2**20]), []
    state = build_setup(
        small("abc"), Parts(), load_samples(small("abc"), Parts()), torch.device("cpu"), no_progress
    ).state
    monkeypatch.setattr(
        overhead_worker, "build_setup", lambda *rest: SimpleNamespace(step=lambda number: None, state=state)
    )
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append(True))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: next(held))
    measurement = overhead_worker.Measurement(small("abc"), torch.device("mps"))
    for _ in range(3):
        measurement.epoch()
    answer = measurement.end()
    assert (answer["memory_megabytes"], answer["device"], len(waited)) == (5.0, "mps", 3)


def test_measurement_answers_one_line_per_request(monkeypatch, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(small("standard").tree()))
    monkeypatch.setattr(overhead_worker.sys, "stdin", iter(["epoch\n", "end\n"]))
    overhead_worker.main(str(tmp_path / "config.json"), "cpu")
    seconds, answer = map(json.loads, capsys.readouterr().out.splitlines())
    assert seconds > 0
    assert answer["parameters"] > 0


@pytest.mark.slow
def test_the_real_processes():
    record = tab_overhead.study(StudyOptions(scale="smoke", device="cpu"))
    assert all(seconds > 0 for cost in record.costs for seconds in cost.epoch_seconds)
    assert {cost.parameters for cost in record.costs} == {889_248}
    assert all(0 < cost.memory_megabytes < 4000 for cost in record.costs)
