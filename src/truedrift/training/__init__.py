"""Run an optimization: configuration → steps → checkpoints, in an engine that cannot lose work."""

from truedrift.training.config import RunConfig
from truedrift.training.export import open_generator
from truedrift.training.loop import Report, train
from truedrift.training.parts import Parts

__all__ = ["Parts", "Report", "RunConfig", "open_generator", "train"]
