"""Many runs that answer one question, with a record of where each number is from."""

from perron.experiments.runner import run_study
from perron.experiments.study import Study, read_study

__all__ = ["Study", "read_study", "run_study"]
