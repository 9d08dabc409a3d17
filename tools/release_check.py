"""Check a release: build both archives, check their metadata, and install every extra into a clean environment.

    python tools/release_check.py                     # all extras but those of `EXCEPTIONS`
    python tools/release_check.py --extras app slurm  # these, and the package without extras

Each environment is a new venv without the packages of the system. Torch, the one large dependency, is installed once
and hard-linked into each. The check of an extra imports every package that the extra requires, and then runs its
entry in `CHECKS`. The last lines are a table: extra, result, size of what it installs in addition to torch, seconds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NO_EXTRA = "(none)"
NOT_INSTALLED = ("dev",)
EXCEPTIONS = {
    "dev": "`make test` installs it",
    "fidelity": "it needs a torchvision that fits torch, so it is checked only if --extras names it",
}
"""Extra → why it is not checked."""
LIMIT_SECONDS = 1800

IMPORT_REQUIREMENTS = """
import importlib, importlib.metadata, re, sys
from pathlib import Path
import truedrift
assert Path(truedrift.__file__).is_relative_to(sys.prefix), truedrift.__file__
modules = importlib.metadata.packages_distributions()
normalize = lambda name: re.sub(r"[-_.]+", "-", name).lower()
for given in sys.argv[1:]:
    found = [module for module, names in modules.items() if normalize(given) in map(normalize, names)]
    assert found, f"{given} is not installed"
    for module in found:
        if module.isidentifier() and not module.startswith("_"):
            importlib.import_module(module)
"""
"""Imports the packages with these names; the package itself must come from this environment."""

CHECKS: dict[str, tuple[tuple[str, ...], ...]] = {
    NO_EXTRA: (
        ("-c", "import torch, truedrift; truedrift.drift_loss(torch.randn(2, 4, 3), torch.randn(2, 4, 3)).loss.mean()"),
    ),
    "lab": (
        ("-c", "import torch, truedrift as t; t.exact_moments(torch.zeros(1, 2), torch.randn(1000, 2), tau=1.0, n=8)"),
    ),
    "train": (
        ("-c", "import truedrift as t; assert t.load('pretrained:digits').sample(2, label=3).shape == (2, 8, 8)"),
        ("-c", "import numpy, truedrift as t; t.fit(numpy.eye(60, 3), steps=5, progress=False).sample(2)"),
    ),
    "app": (
        ("-m", "truedrift", "--help"),
        ("-m", "truedrift", "doctor"),
        ("-m", "truedrift", "sample", "pretrained:cifar10"),
        ("-m", "truedrift", "reproduce", "fig:bias_loglog", "--scale", "smoke"),
        ("-m", "truedrift", "demo", "--epochs", "1", "--draws", "100"),
    ),
}
"""Extra → arguments of the Python of its environment, each run in an empty directory."""


@dataclass(frozen=True)
class Result:
    """The result of one extra; `problem` is empty if all checks passed."""

    extra: str
    problem: str
    size: int
    seconds: float

    def row(self) -> str:
        """Return its line of the table."""
        state = "failed" if self.problem else "ok"
        return f"{self.extra:12} {state:8} {self.size / 1e6:7.0f} MB {self.seconds:6.0f} s"


class CheckFailed(Exception):
    """A command failed."""


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command without the user's environment of Python; return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRUEDRIFT_"))}
    environment = kept | {"TRUEDRIFT_CACHE": str(folder / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    words = [str(word) for word in command]
    finished = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if finished.returncode:
        raise CheckFailed(f"{' '.join(words[1:])[:200]}\n{finished.stdout[-3000:]}")
    return finished.stdout


def read_project() -> dict[str, list[str]]:
    """Return the extras of pyproject.toml with their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {NO_EXTRA: project["dependencies"], **project["optional-dependencies"]}


def requirement_names(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Yield the names of the packages that an extra requires, also by naming other extras."""
    for requirement in extras[extra]:
        name = requirement
        for sign in "[<>=!~; ":
            name = name.partition(sign)[0]
        if name == "truedrift":
            for other in requirement.partition("[")[2].partition("]")[0].split(","):
                yield from requirement_names(other.strip(), extras)
        else:
            yield name


def build_archives() -> tuple[Path, Path]:
    """Build sdist and wheel into dist/, the wheel from the unpacked sdist; check their metadata and content."""
    shutil.rmtree(DIST, ignore_errors=True)
    build = [sys.executable, "-m", "hatchling", "build", "--directory", DIST, "--target"]
    run([*build, "sdist"], ROOT)
    (source,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        run([*build, "wheel"], unpacked)
    (wheel,) = DIST.glob("*.whl")
    run([sys.executable, "-m", "twine", "check", "--strict", source, wheel], ROOT)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    strangers = [name for name in names if not name.startswith("truedrift") or "__pycache__" in name]
    if strangers:
        raise CheckFailed(f"the wheel contains {strangers[:5]}")
    return source, wheel


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def make_base(folder: Path, torch: str) -> Path:
    """Make an environment that contains torch."""
    run([sys.executable, "-m", "venv", folder], folder.parent)
    run([folder / "bin/python", "-m", "pip", "install", "--progress-bar", "off", torch], folder.parent)
    return folder


def check_extra(extra: str, extras: dict[str, list[str]], wheel: Path, base: Path) -> Result:
    """Install the wheel with an extra into a copy of the base, import what it requires, and run its checks."""
    start = time.monotonic()
    folder = base.parent / extra.strip("()")
    problem = ""
    try:
        run([sys.executable, "-m", "venv", "--without-pip", folder], base.parent)
        shutil.copytree(base / "lib", folder / "lib", copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        python = folder / "bin/python"
        wanted = str(wheel) if extra == NO_EXTRA else f"{wheel}[{extra}]"
        run([python, "-m", "pip", "install", "--progress-bar", "off", wanted], base.parent)
        run([python, "-m", "pip", "check"], base.parent)
        work = folder / "work"
        work.mkdir()
        run([python, "-W", "ignore", "-c", IMPORT_REQUIREMENTS, *requirement_names(extra, extras)], work)
        for arguments in CHECKS.get(extra, ()):
            run([python, *arguments], work)
    except (CheckFailed, subprocess.TimeoutExpired) as error:
        problem = str(error)
    size = folder_size(folder / "lib") - folder_size(base / "lib")
    shutil.rmtree(folder)
    return Result(extra, problem, size, time.monotonic() - start)


def skipped_rows(checked: Sequence[str]) -> list[str]:
    """Return a line of the table for every exception that is not checked, with the reason."""
    return [f"{extra:12} {'skipped':8} {reason}" for extra, reason in EXCEPTIONS.items() if extra not in checked]


def main() -> int:
    """Run all checks; return 0 if they pass."""
    extras = read_project()
    known = [extra for extra in extras if extra not in NOT_INSTALLED]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [extra for extra in known[1:] if extra not in EXCEPTIONS]
    parser.add_argument("--extras", nargs="*", choices=known[1:], default=usual)
    parser.add_argument("--folder", type=Path, help="where the environments are made, several GB")
    given = parser.parse_args()
    try:
        source, wheel = build_archives()
    except CheckFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    sizes = "\n".join(f"{path.name:40} {path.stat().st_size / 1e6:6.1f} MB" for path in (wheel, source))
    print(sizes, flush=True)
    results = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print("installing torch into the base environment", flush=True)
        (torch,) = extras[NO_EXTRA]
        base = make_base(Path(folder) / "base", torch)
        for extra in (NO_EXTRA, *given.extras):
            results.append(check_extra(extra, extras, wheel, base))
            print(results[-1].row(), flush=True)
        size = folder_size(base / "lib")
    print(f"\n{sizes}\ntorch and pip {size / 1e6:.0f} MB; in addition to these:")
    print("\n".join(result.row() for result in results))
    print("\n".join(skipped_rows(given.extras)))
    for result in results:
        if result.problem:
            print(f"\n{result.extra} failed: {result.problem}", file=sys.stderr)
    return int(any(result.problem for result in results))


if __name__ == "__main__":
    sys.exit(main())
