"""The only place that reads a pickle: in another process, weights alone, and out comes a safetensors file."""

from truedrift.quarantine.convert import SCALARS, convert_pickle, require_checkpoint

__all__ = ["SCALARS", "convert_pickle", "require_checkpoint"]
