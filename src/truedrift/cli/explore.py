"""`truedrift explore`: write one page on which the bias of a centroid can be explored."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from truedrift.page.explore import write_explore
from truedrift.records.store import writable_directory
from truedrift.training.pictures import require_writable_file


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write an interactive page on the bias of a minibatch centroid and on matched references.

    Open the page in a browser. Drag the query and the clusters, change n, τ, kernel and estimator, and see the
    centroids of minibatches, their bias and its exact length. A second panel moves particles by the drifting field,
    matched or not. The page is one file that needs no network.

    Try it:
      truedrift explore
      truedrift explore --out bias.html
    """

    out: Path = Path("runs/explore/index.html")
    """HTML file to write."""

    def prepare(self) -> Callable[[], str]:
        """Check the file and its directory."""
        require_writable_file(self.out)
        writable_directory(self.out.parent)
        return partial(_explore, self.out)


def _explore(out: Path) -> str:
    return f"page: {write_explore(out)}"
