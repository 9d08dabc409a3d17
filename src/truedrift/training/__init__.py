"""Run an optimization: configuration → steps → checkpoints, in an engine that cannot lose work."""

from truedrift.training.config import RunConfig
from truedrift.training.load import open_generator
from truedrift.training.loop import Report
from truedrift.training.setup import Parts
from truedrift.training.train import replay, train

__all__ = ["Parts", "Report", "RunConfig", "open_generator", "replay", "train"]
