"""Flip bits in the files of a run directory, then train again, draw samples, evaluate and report.

Either the result is bit for bit the same, or the damage is reported in one line and nothing is silently wrong. A file
that was damaged is never lost: it is kept, or computed again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from truedrift.training import checkpoint as checkpoint_module
from truedrift.training import journal

from .commands import Before, find_problem, replace_everywhere
from .hostile_text import parse_strictly, skip_drawing
from .runs import STEPS, Bench, train_arguments
from .table import Attack


@dataclass(frozen=True)
class Flip:
    """The bits to flip in a file of a complete or of an unfinished run."""

    complete: bool
    name: str
    bits: tuple[int, ...]
    """Positions from the beginning of the file."""

    def apply(self, run: Path) -> None:
        """Flip the bits."""
        path = run / self.name
        content = bytearray(path.read_bytes())
        for bit in self.bits:
            content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)


def draw_flip(bench: Bench, pattern: str, complete: bool | None = None) -> Callable[[random.Random, int], Flip]:
    """Return a function that draws one to three bits of a file whose name matches the pattern."""

    def draw(rng: random.Random, number: int) -> Flip:
        is_complete = rng.random() < 0.5 if complete is None else complete
        run = bench.complete if is_complete else bench.half
        names = sorted(str(path.relative_to(run)) for path in run.rglob(pattern) if path.is_file())
        name = rng.choice([name for name in names if (run / name).stat().st_size])
        size = 8 * (run / name).stat().st_size
        return Flip(is_complete, name, tuple(rng.randrange(size) for _ in range(rng.choice((1, 1, 3)))))

    return draw


def damaged_copy(bench: Bench, flip: Flip) -> Path:
    """Copy the run and flip the bits."""
    run = bench.copy(bench.complete if flip.complete else bench.half, bench.new_folder())
    flip.apply(run)
    return run


# ---- Train again ----


def train_again(bench: Bench, flip: Flip, before: Sequence[Before]) -> str | None:
    """Run the same command again. The outcome is the same; a damaged log and the skipped checkpoint are reported."""
    run = damaged_copy(bench, flip)
    damaged = (run / flip.name).read_bytes()
    ended = bench.run(train_arguments(run), run.parent, before)
    problem = find_problem(ended)
    if problem is not None:
        return problem
    if ended.status == 2:  # refused: then everything is still there
        kept = (run / flip.name).read_bytes() == damaged
        return None if kept else f"{flip.name} was changed, and the command was refused"
    difference = bench.find_difference(run)
    if difference is None or (difference == f"{flip.name} differs" and flip.name.startswith("samples/")):
        return None  # a picture of a step that was taken is not drawn again
    reported = any(" damaged" in line or "does not match" in line for line in ended.messages)
    if flip.name != "metrics.jsonl" or not reported:
        return f"{difference}, and it was not reported"
    copies = [path.read_bytes() for path in run.glob("metrics.damaged-*.jsonl")]
    return None if copies == [damaged] else "the damaged log was not kept"


def skip_hashes() -> None:
    """Break the check of checkpoints: hashes are not compared."""

    def verify_files(path: Path, manifest: checkpoint_module.Manifest) -> object:
        return ((name, (path / name).read_bytes()) for name in manifest.files)

    replace_everywhere("_verify_files", verify_files)

    def from_bytes(cls: type, content: bytes) -> checkpoint_module.Manifest:
        document = json.loads(content)
        return cls(document["run"], document["step"], document["facts"], document["files"])

    checkpoint_module.Manifest.from_bytes = classmethod(from_bytes)


def ignore_log_hash() -> None:
    """Break the check of the log: its hash is not compared."""
    resume = journal.MetricsLog.resume.__func__

    def resume_any(cls: type, path: Path, length: int, sha256: str | None = None) -> journal.MetricsLog:
        return resume(cls, path, length, None)

    journal.MetricsLog.resume = classmethod(resume_any)


def ignore_config_hash() -> None:
    """Break the check of config.json: its hash is not compared."""
    replace_everywhere("matches_its_hash", lambda content: True)


# ---- Samples and reports ----


def draw_samples(bench: Bench, flip: Flip, before: Sequence[Before]) -> str | None:
    """Draw samples. They are those of the newest checkpoint, or of an earlier one with a message."""
    run = damaged_copy(bench, flip)
    ended = bench.run(sample_arguments(run, run.parent / "samples.npz"), run.parent, before)
    problem = find_problem(ended)
    if problem is not None or ended.status == 2:
        return problem
    found = (run.parent / "samples.npz").read_bytes()
    expected = samples_by_step(bench)
    if found == expected[STEPS]:
        return None
    if found in expected.values() and "was skipped" in ended.out:
        return None
    return "the samples differ, and it was not reported"


def sample_arguments(run: Path, out: Path) -> list[str]:
    return ["sample", str(run), "--form", "npz", "--count", "20", "--device", "cpu", "--out", str(out)]


def samples_by_step(bench: Bench) -> dict[int, bytes]:
    """Return the samples of every checkpoint of the complete run."""
    folder = bench.root / "samples"
    folder.mkdir(exist_ok=True)
    found = {}
    for step in checkpoint_module.steps(bench.complete / "checkpoints"):
        out = folder / f"{step}.npz"
        if not out.exists():
            ended = bench.run([*sample_arguments(bench.complete, out), "--step", str(step)], folder)
            assert ended.status == 0, ended.err
        found[step] = out.read_bytes()
    return found


def write_report(bench: Bench, flip: Flip, before: Sequence[Before]) -> str | None:
    """Write the page: it is complete, or the command refuses in one line."""
    run = damaged_copy(bench, flip)
    drawing = [skip_drawing] if bench.is_quick or sum(flip.bits) % 4 else []
    ended = bench.run(["report", str(run), "--out", str(run.parent / "page")], run.parent, [*drawing, *before])
    problem = find_problem(ended)
    if problem is None and ended.status == 0 and not list((run.parent / "page").glob("*.html")):
        return "no page was written"
    return problem


def attacks(bench: Bench) -> list[Attack]:
    def draw_in_commit(rng: random.Random, number: int) -> Flip:
        """Flip the lowest bit of a digit of the commit, which changes nothing else."""
        place = (bench.half / "config.json").read_bytes().index(b'"commit": "') + len('"commit": "')
        return Flip(False, "config.json", (8 * (place + rng.randrange(30)),))

    return [
        Attack(
            "bits flipped in a checkpoint, train again",
            draw_flip(bench, "checkpoints/*/*", complete=False),
            lambda flip, before: train_again(bench, flip, before),
            control="hashes not compared",
            broken=skip_hashes,
            quick_tries=2,
            control_draw=draw_flip(bench, "step-00000006/generator.safetensors", complete=False),
        ),
        Attack(
            "bits flipped in config.json, train again",
            draw_flip(bench, "config.json"),
            lambda flip, before: train_again(bench, flip, before),
            control="hash of config.json not compared",
            broken=ignore_config_hash,
            control_draw=draw_in_commit,
        ),
        Attack(
            "bits flipped in metrics.jsonl, train again",
            draw_flip(bench, "metrics.jsonl"),
            lambda flip, before: train_again(bench, flip, before),
            control="hash of the log not compared",
            broken=ignore_log_hash,
        ),
        Attack(
            "bits flipped in any file, train again",
            draw_flip(bench, "*"),
            lambda flip, before: train_again(bench, flip, before),
            control="hashes not compared",
            broken=skip_hashes,
            control_draw=draw_flip(bench, "step-00000006/optimizer.safetensors", complete=False),
        ),
        Attack(
            "bits flipped in any file, sample",
            draw_flip(bench, "*", complete=True),
            lambda flip, before: draw_samples(bench, flip, before),
            control="hashes not compared",
            broken=skip_hashes,
            control_draw=draw_flip(bench, "step-00000012/ema.safetensors", complete=True),
        ),
        Attack(
            "bits flipped in any file, report",
            draw_flip(bench, "*", complete=True),
            lambda flip, before: write_report(bench, flip, before),
            control="broken lines not left out",
            broken=parse_strictly,
            control_draw=lambda rng, number: Flip(True, "metrics.jsonl", (7,)),
        ),
    ]
