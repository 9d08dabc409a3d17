"""What every test runs under: oracles importable, one thread, repeatable examples, shapes checked."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

# Some virtual machines advertise AMX and kill the process that uses it, as bfloat16 products of oneDNN would.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")


sys.path.insert(0, str(Path(__file__).parent))  # from oracles import …
torch.set_num_threads(1)
os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # tests run beside each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background, with which processes begin
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")
# Before anything imports the package. Not in objective, where torch.library reads the plain functions' annotations.
jaxtyping.install_import_hook([f"truedrift.{room}" for room in ("kernels", "centroids", "field")], "beartype.beartype")


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """The package as users run it, without the check of shapes: so it is compiled, and so it answers mistakes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
