"""`truedrift doctor`: versions, devices, threads, caches and extras, to paste into an issue."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from truedrift._version import __version__
from truedrift.cli.options.tools import Doctor
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.storage import cache_directory

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "lab": (("numba", "numpy"), "exact bias of large pools"),
    "train": (
        ("filelock", "huggingface-hub", "numpy", "pillow", "safetensors", "scikit-learn"),
        "training and data sets",
    ),
    "app": (("jinja2", "matplotlib", "rich", "scipy", "tensorboard", "tyro"), "the command truedrift, and pages"),
    "dinov2": (("transformers",), "the paper's encoder: recipes cifar10 and cifar100"),
    "wandb": (("wandb",), "truedrift train --log wandb"),
    "mlflow": (("mlflow",), "truedrift train --log mlflow"),
    "slurm": (("submitit",), "truedrift reproduce --executor slurm"),
    "fidelity": (("torch-fidelity",), "the Inception Score with the classifier of the FID network"),
    "onnx": (("onnx", "onnxruntime", "onnxscript"), "truedrift export --onnx"),
    "serve": (("gradio",), "truedrift serve"),
    "docs": (("mkdocs", "mkdocs-material", "mkdocstrings-python"), "make docs, the documentation site"),
}
"""Extra → its packages and what they enable."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "TRUEDRIFT_CACHE")


def prepare(command: Doctor) -> Callable[[], str]:
    """Return the work; there is nothing to check."""
    return describe_system


def describe_system() -> str:
    """Return the whole text."""
    sections = {
        "versions": _versions(),
        "machine": _machine(),
        "cache": _cache(),
        "extras": _extras(),
    }
    lines: list[str] = []
    for name, section in sections.items():
        rows = list(section)
        width = max(len(label) for label, _ in rows) + 2
        lines += [name, *(f"  {label:{width}}{text}" for label, text in rows), ""]
    return "\n".join(lines).rstrip()


def _versions() -> Iterable[tuple[str, str]]:
    yield "truedrift", f"{__version__} in {_shorten(Path(__file__).parents[1])}"
    yield "python", f"{platform.python_version()} in {_shorten(Path(sys.prefix))}"
    for package in ("torch", "numpy", "safetensors"):
        yield package, package_version(package) or "not installed"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"


def _machine() -> Iterable[tuple[str, str]]:
    import torch  # noqa: PLC0415  takes a second

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "cores", f"{os.cpu_count()}, {usable} of them for this process"
    yield "threads", f"{torch.get_num_threads()} of torch"
    yield "memory", _memory()
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(number)
            yield f"cuda:{number}", f"{found.name}, {found.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
    else:
        yield "cuda", f"not available (torch is built {'with' if torch.version.cuda else 'without'} it)"
    yield "mps", "available" if torch.backends.mps.is_available() else "not available"
    for name in THREAD_VARIABLES:
        if name in os.environ:
            yield name, _shorten(Path(os.environ[name])) if name == "TRUEDRIFT_CACHE" else os.environ[name]


def _memory() -> str:
    try:
        total, free = (os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (OSError, ValueError):  # macOS has no number of free pages
        return "unknown"
    return f"{total / 1e9:.0f} GB, {free / 1e9:.0f} GB free"


def _cache() -> Iterable[tuple[str, str]]:
    root = cache_directory()
    yield "directory", _shorten(root)
    existing = next(path for path in (root, *root.parents) if path.exists())
    yield "free space", f"{shutil.disk_usage(existing).free / 1e9:.0f} GB"
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    for folder in folders:
        yield folder.name, f"{_size(folder) / 1e6:,.0f} MB"
    missing = [name for name in REMOTE_ASSETS if not (root / name).is_dir()]
    if missing:
        yield "not fetched", f"{', '.join(missing)} (truedrift data fetch NAME)"


def _size(folder: Path) -> int:
    """Return the size of all files in a folder; files that disappear meanwhile do not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue
    return total


def _extras() -> Iterable[tuple[str, str]]:
    for extra, (packages, purpose) in EXTRAS.items():
        missing = [package for package in packages if package_version(package) is None]
        if missing:
            yield extra, f"missing {', '.join(missing)}; for {purpose}: pip install 'truedrift[{extra}]'"
        else:
            yield extra, f"installed: {', '.join(f'{package} {package_version(package)}' for package in packages)}"


def package_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _shorten(path: Path) -> str:
    """Return the path with ~ for the home directory."""
    try:
        return f"~/{path.absolute().relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
