"""Run an optimization: configuration → steps → checkpoints, in an engine that cannot lose work."""

from truedrift.training.config import RunConfig
from truedrift.training.entry import train
from truedrift.training.export import open_generator
from truedrift.training.loop import Report
from truedrift.training.parts import Parts
from truedrift.training.replay import replay

__all__ = ["Parts", "Report", "RunConfig", "open_generator", "replay", "train"]
