"""Studies: variants of a recipe, each trained with several seeds and compared."""

from perron.experiments.runner import compare, run_study
from perron.experiments.study import Study, read_study

__all__ = ["Study", "compare", "read_study", "run_study"]
