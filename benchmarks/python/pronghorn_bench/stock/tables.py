"""Pipelines of scikit-learn on the data sets that come with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def _scaled(name: str, **options: Any) -> Callable[[], Any]:
    """A standard scaler before an estimator of `module:class`."""

    def build() -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), _estimator(name, **options))

    return build


def _estimator(name: str, **options: Any) -> Any:
    import importlib

    module, cls = name.split(":")
    return getattr(importlib.import_module(f"sklearn.{module}"), cls)(**options)


MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "cancer_mlp": ("breast_cancer", _scaled("neural_network:MLPClassifier", max_iter=400, random_state=1)),
    "cancer_logistic": ("breast_cancer", _scaled("linear_model:LogisticRegression")),
    "cancer_logistic_raw": ("breast_cancer", lambda: _estimator("linear_model:LogisticRegression", max_iter=9000)),
    "cancer_forest": ("breast_cancer", lambda: _estimator("ensemble:RandomForestClassifier", random_state=1)),
    "cancer_tree": ("breast_cancer", lambda: _estimator("tree:DecisionTreeClassifier", random_state=1)),
    "cancer_boosted": ("breast_cancer", lambda: _estimator("ensemble:GradientBoostingClassifier", random_state=1)),
    "digits_forest": ("digits", lambda: _estimator("ensemble:RandomForestClassifier", random_state=1)),
    "diabetes_boosted": ("diabetes", lambda: _estimator("ensemble:GradientBoostingRegressor", random_state=1)),
    "cancer_svc": ("breast_cancer", _scaled("svm:SVC")),
    "wine_svc": ("wine", _scaled("svm:SVC")),
    "digits_svc": ("digits", _scaled("svm:SVC")),
    "diabetes_svr": ("diabetes", _scaled("svm:SVR", C=100.0)),
    "wine_mlp": ("wine", _scaled("neural_network:MLPClassifier", max_iter=400, random_state=1)),
    "wine_logistic": ("wine", _scaled("linear_model:LogisticRegression")),
    "digits_mlp": ("digits", _scaled("neural_network:MLPClassifier", max_iter=200, random_state=1)),
    "digits_mlp_raw": ("digits", lambda: _estimator("neural_network:MLPClassifier", max_iter=200, random_state=1)),
    "digits_tanh": ("digits", _scaled("neural_network:MLPClassifier", activation="tanh", random_state=1)),
    "iris_logistic": ("iris", _scaled("linear_model:LogisticRegression")),
    "diabetes_ridge": ("diabetes", _scaled("linear_model:Ridge")),
    "diabetes_mlp": ("diabetes", _scaled("neural_network:MLPRegressor", max_iter=900, random_state=1)),
    "diabetes_lasso": ("diabetes", lambda: _estimator("linear_model:Lasso", alpha=0.1)),
}
"""A data set and a model each."""


def export(name: str, path: Path) -> tuple[Floats, Floats]:
    """Trains a model on three quarters of the rows, and writes it. Returns these rows and the others."""
    from skl2onnx import to_onnx
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    data, build = MODELS[name]
    rows, targets = getattr(datasets, f"load_{data}")(return_X_y=True)
    rows = rows.astype(np.float32)
    kept, others, wanted, _ = train_test_split(rows, targets, random_state=1)
    model = build().fit(kept, wanted)
    path.write_bytes(to_onnx(model, kept[:1]).SerializeToString())
    return kept, others
