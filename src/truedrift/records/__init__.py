"""What a study found, as typed records: one JSON object a line, with where it came from.

An experiment computes and appends; a report reads and draws. A record is a frozen dataclass of numbers, strings,
tuples and further records, and comes back from the file as it was; one kind a file here.
"""

from truedrift.records.baselines import Baseline, Baselines
from truedrift.records.bias_curves import BiasCurve, BiasCurves, Contraction, SampledPoints
from truedrift.records.evaluated import EVALUATIONS, Evaluated, Metrics, Protocol
from truedrift.records.guidance import AtStrength, Guidance
from truedrift.records.hyperparameters import Epochs, Hyperparameters
from truedrift.records.illustration import Illustration, Point
from truedrift.records.image_grid import EvaluatedStep, ImageGrid, ImageRun
from truedrift.records.normalization import FieldBias, FieldBiases
from truedrift.records.origin import Provenance, made_by, provenance
from truedrift.records.overhead import Cost, Overhead
from truedrift.records.pool_bias import BiasAt, PoolBias
from truedrift.records.store import RECORDS, append, read, readable, writable_directory
from truedrift.records.temperature import AtTemperature, Compensated, Temperature
from truedrift.records.trained_digits import DigitsRun, TrainedDigits

__all__ = [
    "EVALUATIONS",
    "RECORDS",
    "AtStrength",
    "AtTemperature",
    "Baseline",
    "Baselines",
    "BiasAt",
    "BiasCurve",
    "BiasCurves",
    "Compensated",
    "Contraction",
    "Cost",
    "DigitsRun",
    "Epochs",
    "Evaluated",
    "EvaluatedStep",
    "FieldBias",
    "FieldBiases",
    "Guidance",
    "Hyperparameters",
    "Illustration",
    "ImageGrid",
    "ImageRun",
    "Metrics",
    "Overhead",
    "Point",
    "PoolBias",
    "Protocol",
    "Provenance",
    "SampledPoints",
    "Temperature",
    "TrainedDigits",
    "append",
    "made_by",
    "provenance",
    "read",
    "readable",
    "writable_directory",
]
