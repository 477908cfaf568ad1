"""Many runs that answer one question, with a record of where each number is from."""

from perron.studies.run import run_study
from perron.studies.settings import Study, read_study, study_names

__all__ = ["Study", "read_study", "run_study", "study_names"]
