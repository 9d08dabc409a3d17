"""Resources of Slurm jobs. The command line reads this module, which needs no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Resources requested for every run."""

    partition: str | None = None
    """Partition of the cluster; if not given, the default of the cluster."""
    account: str | None = None
    """Account to charge."""
    time_minutes: int = 24 * 60
    """Time limit of a job; a longer run continues in the next job."""
    gpus: int = 1
    """GPUs per run."""
    cpus: int = 8
    """CPU cores per run."""
    memory_gb: int = 32
    """Memory per run in GB."""
    setup: tuple[str, ...] = ()
    """Shell lines that run first, for example "module load cuda"."""
    extra: tuple[str, ...] = ()
    """Further sbatch settings as name=value, for example constraint=a100."""
