"""`import truedrift` and the maths core need torch and nothing else."""

import subprocess
import sys

BLOCK_PACKAGES = """
import sys

BLOCKED = {"tyro", "matplotlib", "jaxtyping", "beartype", "rich", "scipy", "sklearn", "PIL", "numba", "safetensors"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
"""

USE_CORE = """
import torch, truedrift

x, y = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
assert truedrift.centroid(x, y, tau=0.5).shape == (2, 3, 5)
gen = torch.randn(8, 5, requires_grad=True)
truedrift.drift_loss(gen, torch.randn(8, 5)).loss.backward()
assert gen.grad.abs().sum() > 0
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("truedrift.")}
above = {"cli", "data", "evaluation", "grids", "page", "paper", "recipes", "records", "report", "training"}
assert not loaded & above, loaded
print("fine")
"""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_core_works_with_torch_alone():
    finished = python(BLOCK_PACKAGES + USE_CORE)
    assert (finished.stdout, finished.returncode) == ("fine\n", 0), finished.stderr


def test_blocked_packages_cannot_be_imported():
    finished = python(BLOCK_PACKAGES + "import truedrift.paper.fig_illustration")
    assert finished.returncode == 1
    assert "ImportError: matplotlib is blocked" in finished.stderr
