"""Models, plans, and verifying a secure run against the float model and the oracle."""

from pronghorn._model.core import Floats, Progress, Shaped, native_errors
from pronghorn._model.model import Model, load, load_with
from pronghorn._model.options import PlanOptions
from pronghorn._model.plan import Plan
from pronghorn._model.report import Report
from pronghorn._model.stats import Stats, counted, speed

__all__ = [
    "Floats",
    "Model",
    "Plan",
    "PlanOptions",
    "Progress",
    "Report",
    "Shaped",
    "Stats",
    "counted",
    "load",
    "load_with",
    "native_errors",
    "speed",
]
