"""Resources of Slurm jobs. The command line reads this module, which needs no torch."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Resources requested for every run."""

    partition: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Partition of the cluster; if not given, the default of the cluster."""
    account: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Account to charge."""
    time_minutes: int = 24 * 60
    """Time limit of a job; a longer run continues in the next job."""
    gpus: int = 1
    """GPUs per run."""
    cpus: int = 8
    """CPU cores per run."""
    memory_gb: int = 32
    """Memory per run in GB."""
    setup: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[LINE ...]")] = ()
    """Shell lines that run first, for example "module load cuda"."""
    extra: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=VALUE ...]")] = ()
    """Further sbatch settings as name=value, for example constraint=a100."""
