"""Options of the commands that compute, draw and report: the demo, biases, and the figures and tables."""

import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.choices import Kernel
from truedrift.cli.options.command import Command, named
from truedrift.grids.slurm_options import SlurmOptions


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Compute the exact bias and the push on data, train digits with three fields, and write one HTML page.

    Part 1 shows three Gaussian clusters, a query near the left one, and n references: the plain centroid, the corrected
    one (ABC) and the target. The figure always shows draw 0 of the seed; the numbers cover all draws.
    Part 2 is fig:bias_loglog at the paper's full scale, computed without Monte Carlo. Part 3 is the study equilibrium
    at scale smoke, with few queries and particles: the push of the field on data itself, and where samples end with and
    without matched references. Part 4 trains and evaluates digits three times from the same seed: with the paper's 8
    positives, standard and ABC, and with 126 positives in matched windows. The page also shows samples of the
    pretrained models of the package. It is one self-contained file that needs no network.

    Try it:
      truedrift demo
      truedrift demo --seed 1 --out runs/another-draw
      truedrift demo --epochs 5
    """

    work = "truedrift.cli.demo"

    out: Annotated[Path, named("DIR")] = Path("runs/demo")
    """Directory for the page, figures, tables, records and the three runs."""

    seed: int = 0
    """Seed of all random draws."""

    draws: int = 10_000
    """Minibatches in part 1."""

    n: int = 4
    """References per minibatch in part 1."""

    epochs: int = 25
    """Training epochs on the digits, 100 steps each; 0 skips training."""

    def command(self) -> str:
        """Return the command line that gives the same result."""
        words = ["truedrift", "demo"]
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                words += [f"--{option.name}", str(value)]
        return shlex.join(words)


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Write an interactive page on the bias of a minibatch centroid and on matched references.

    Open the page in a browser. Drag the query and the clusters, change n, τ, kernel and estimator, and see the
    centroids of minibatches, their bias and its exact length. A second panel moves particles by the drifting field,
    matched or not. The page is one file that needs no network.

    Try it:
      truedrift explore
      truedrift explore --out bias.html
    """

    work = "truedrift.cli.explore"

    out: Annotated[Path, named("FILE")] = Path("runs/explore/index.html")
    """HTML file to write."""


@dataclass(frozen=True, kw_only=True)
class Bias(Command):
    """Compute the exact bias of the centroid of n references, for a named toy or your own pool.

    POOL is four-modes or three-clusters, or a file of points [N, D]: .npy, .npz or .safetensors with an array `pool`
    or with a single array. The bias is computed at the queries: the array `queries` [Q, D] of the file, or points of
    the pool if the file has none. It is exact for standard, abc, abc2, jackknife and br-snis. With --trials it is a
    Monte Carlo estimate, which is also available for bootstrap.

    Try it:
      truedrift bias four-modes --tau 0.1
      truedrift bias four-modes --tau 0.1 0.2 --n 8 64 512 --estimator standard abc
      truedrift bias four-modes --n 16 --estimator bootstrap --trials 2000 --queries 20
    """

    work = "truedrift.cli.bias"

    pool: Annotated[str, tyro.conf.Positional, named("POOL")]
    """Name of a toy, or path of a file."""

    tau: Annotated[tuple[float, ...], named("[FLOAT ...]")] = (0.1,)
    """One or more temperatures of the kernel."""

    n: Annotated[tuple[int, ...], named("[INT ...]")] = (4, 8, 16, 32, 64, 128, 256, 512)
    """One or more minibatch sizes, in references."""

    estimator: Annotated[tuple[str, ...], named("[ESTIMATOR ...]")] = ("standard", "abc", "abc2")
    """One or more of standard, abc, abc2, jackknife, br-snis; with --trials also bootstrap."""

    kernel: Kernel = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    queries: int = 50
    """Number of queries, if the file has none."""

    trials: Annotated[int | None, named("INT")] = None
    """Monte Carlo minibatches per query; the exact bias is computed if not given."""

    without_replacement: bool = False
    """Draw without replacement (needs --trials)."""

    seed: int = 0
    """Seed of the toy, the choice of queries and the trials."""

    largest_gigabytes: float = 8.0
    """Limit for the arrays of the file in memory."""

    out: Annotated[Path | None, named("DIR")] = None
    """Directory for the record and the tables; nothing is written if not given."""


@dataclass(frozen=True, kw_only=True)
class Diagnose(Command):
    """Estimate the bias of your centroid, and the n you need, from your own features or weights.

    FILE is .npy, .npz or .safetensors with `weights` [..., n], or `distances` [Q, N], or `queries` [Q, D] and
    `references` [N, D]. Weights give n_eff and dominance. Distances and features also give the bias of the centroid of
    n references with an interval, the n for a wanted bias, the confidence in these numbers, and advice. With
    --generated, they also give the push of the field where generated and real samples have the same distribution.

    Try it:
      truedrift diagnose features.npz --tau 0.02 0.05 0.2 --n 64
      truedrift diagnose features.npz --tau 0.05 --n 64 --want 0.001 --json
      truedrift diagnose features.npz --tau 0.05 --n 64 --generated 8
      truedrift diagnose weights.npy --array weights
    """

    work = "truedrift.cli.diagnose"

    file: Annotated[Path, tyro.conf.Positional, named("FILE")]
    """File of the arrays."""

    tau: Annotated[tuple[float, ...], named("[FLOAT ...]")] = ()
    """One or more temperatures of the kernel. Not needed for weights."""

    n: int = 64
    """References per centroid. Not needed for weights."""

    want: float = 0.01
    """The wanted bias, as a fraction of √(E‖y − T*‖²); the n that gives it is computed."""

    generated: Annotated[int | None, named("INT")] = None
    """Generated samples g per class of a batch, 3 or more; for the push of n positives and g − 1 negatives."""

    kernel: Kernel = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    array: Annotated[Literal["weights", "distances"] | None, named("{weights,distances}")] = None
    """Meaning of the array in a .npy file."""

    json: bool = False
    """Print JSON instead of a table."""

    out: Annotated[Path | None, named("FILE")] = None
    """Also write the JSON to this file."""

    largest_gigabytes: float = 8.0
    """Limit for the arrays of the file in memory."""

    seed: int = 0
    """Seed for subsampling large inputs and for simulated minibatches."""


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Compute and draw a figure or table of the paper, or an additional study.

    The result is a record in DIR/records.jsonl, with figures and tables drawn from it. An image experiment is a grid of
    runs. Finished runs are reused, including by other items, and the same command continues where it stopped. With
    --executor slurm the command submits the missing runs and returns; run it again to collect the results.

    Items of the paper:
      Figure 1  fig:illustration         Table 1  tab:main_results      Table 5  tab:baselines
      Figure 2  fig:bias_loglog          Table 2  tab:samples_to_fid    Table 6  tab:hyperparams
      Figure 3  fig:convergence          Table 3  tab:overhead          Table 7  tab:cifar100
      Figure 4  fig:ablation_trajectory  Appendix D  app:temperature

    Additional studies:
      normalization, guidance, equilibrium, digits, arithmetic, temperature-sweep, matching, images,
      arrays

    Try it:
      truedrift reproduce fig:bias_loglog
      truedrift reproduce tab:baselines --scale smoke
      truedrift reproduce tab:main_results --scale cpu --dry-run
      truedrift reproduce tab:main_results --scale paper --executor slurm --slurm.partition gpu
      truedrift reproduce all --scale smoke --out runs/everything
    """

    work = "truedrift.cli.reproduce"

    item: Annotated[str, tyro.conf.Positional, named("ITEM")]
    """Label of a figure or table, name of a study, or `all`."""

    scale: Annotated[str, named("{smoke,cpu,paper}")] = "cpu"
    """smoke: a quick check (seconds to minutes); cpu: for two cores; paper: the size used in the paper."""

    dataset: Annotated[str | None, named("DATASET")] = None
    """digits, fashion-mnist, cifar10 or cifar100, for image experiments; chosen by item and scale if not given."""

    seed: int = 0
    """Seed of all random draws. Image runs use consecutive seeds from this one on (plus 42 at paper scale)."""

    seeds: Annotated[int | None, named("INT")] = None
    """Number of seeds of an image experiment; chosen by scale if not given."""

    extractor: Annotated[str | None, named("EXTRACTOR")] = None
    """Extractor that evaluates image runs; abc-release (for CIFAR) is the one of the published code."""

    dry_run: bool = False
    """Only print the runs of an image experiment, their state and the estimated cost."""

    runs: Annotated[Path, named("DIR")] = Path("runs/grid")
    """Directory of the runs of image experiments, shared by all items."""

    executor: Annotated[str, named("{local,slurm}")] = "local"
    """Run on this machine (local), or submit to Slurm (slurm)."""

    workers: Annotated[int | None, named("INT")] = None
    """Parallel runs on this machine; one per GPU, or one per core, if not given."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps, for image experiments."""

    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    out: Annotated[Path | None, named("DIR")] = None
    """Directory of records, figures and tables; runs/ITEM-SCALE if not given."""


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write figures, tables and one HTML page from existing records and runs.

    Figures are PNG and PDF; tables are Markdown, LaTeX and CSV. The last record of each item is used. Two or more runs
    are compared: differences in configuration, curves, final numbers, samples. Nothing is computed again.

    Try it:
      truedrift report runs/demo
      truedrift report runs/digits-… runs/digits-… --out runs/compared
      truedrift report runs/fig_bias_loglog-cpu --out figures
    """

    work = "truedrift.cli.report"

    directories: Annotated[tuple[Path, ...], tyro.conf.Positional, named("DIR [DIR ...]")]
    """Runs, directories with records.jsonl, or directories that contain such directories."""

    out: Annotated[Path | None, named("DIR")] = None
    """Output directory; if not given, the input directory, or runs/report for several inputs."""

    title: Annotated[str | None, named("TEXT")] = None
    """Title of the page."""
