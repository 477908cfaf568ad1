"""Perron as estimators of scikit-learn; needs the extra ``train``."""

try:
    from perron.integrations.scikit_learn import (
        CentralityClassifier,
        CentralityVectorizer,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"perron.sklearn needs {error.name}: pip install 'perron[train]'",
        name=error.name,
    ) from error

__all__ = ["CentralityClassifier", "CentralityVectorizer"]
