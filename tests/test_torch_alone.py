"""`import truedrift` and the maths core need torch and nothing else."""

import subprocess
import sys

BLOCKED_FIRST = """
import sys

BLOCKED = {"tyro", "matplotlib", "jaxtyping", "beartype", "rich", "scipy", "sklearn", "PIL"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
"""

USE = """
import torch, truedrift

x, y = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
assert truedrift.centroid(x, y, tau=0.5).shape == (2, 3, 5)
gen = torch.randn(8, 5, requires_grad=True)
truedrift.drift_loss(gen, torch.randn(8, 5)).loss.backward()
assert gen.grad.abs().sum() > 0
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("truedrift.")}
assert not loaded & {"cli", "data", "experiments", "records", "report"}, loaded
print("fine")
"""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_core_works_with_torch_alone():
    done = python(BLOCKED_FIRST + USE)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr


def test_the_block_is_real():
    done = python(BLOCKED_FIRST + "import truedrift.paper.fig_illustration")
    assert done.returncode == 1
    assert "ImportError: matplotlib is blocked" in done.stderr
