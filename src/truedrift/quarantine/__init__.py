"""Conversion of pickles to safetensors. Pickles are read in another process, as weights only, and nowhere else."""

from truedrift.quarantine.convert import SCALARS, convert_pickle, require_checkpoint

__all__ = ["SCALARS", "convert_pickle", "require_checkpoint"]
