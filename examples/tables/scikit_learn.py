"""Pipelines of scikit-learn on raw features, exported with default options, run by `pronghorn verify`.

    pip install scikit-learn skl2onnx
    python examples/tables/scikit_learn.py [--out FOLDER] [--only NAME]

Each data set becomes two CSV files, rows to train and calibrate on and rows to test on. Classes are
compared with scikit-learn's own, values with the true ones. `houses` is made up: prices of 300,000
with a spread of 15,000.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from skl2onnx import to_onnx
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

LEVELS = ("two-party", "client-aided", "encrypted")
COLUMNS = "{:<14} {:<20} {:<13} {:>9} {:>10} {:>9} {:>11} {:>8}"


class Table(NamedTuple):
    """A data set."""

    features: np.ndarray
    targets: np.ndarray
    classes: bool


class Files(NamedTuple):
    """A trained model, and the rows that it is calibrated on and tested with."""

    model: Path
    samples: Path
    data: Path


def main() -> None:
    """Prints a row for each data set, model and trust level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="keep models and CSV files in this folder")
    parser.add_argument("--only", help="the data sets whose name has this text")
    options = parser.parse_args()
    print(COLUMNS.format("data", "model", "level", "alike %", "RMSE ratio", "error", "bytes a row", "ms a row"))
    with tempfile.TemporaryDirectory(prefix="pronghorn-tables-") as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables().items():
            if options.only is None or options.only in name:
                compare(name, table, folder)


def tables() -> dict[str, Table]:
    """Data sets that scikit-learn ships, with raw features, and a made-up one."""
    found = {}
    for name in ("breast_cancer", "wine", "digits"):
        data = getattr(datasets, f"load_{name}")()
        found[name] = Table(data.data, data.target, True)
    diabetes = datasets.load_diabetes(scaled=False)
    return {**found, "diabetes": Table(diabetes.data, diabetes.target, False), "houses": houses()}


def houses(count: int = 2000) -> Table:
    """Area, rooms, year, distance and tax, and a price of 300,000 with a spread of 15,000."""
    random = np.random.default_rng(1)
    area, rooms = random.normal(120, 30, count).clip(40), random.integers(1, 8, count)
    year, distance = random.integers(1950, 2021, count), random.gamma(2, 0.01, count)
    tax = random.normal(2500, 400, count)
    price = 150 * area + 2500 * rooms + 120 * year - 2e5 * distance + 4 * tax + 3000 * np.sin(area / 20)
    price += random.normal(0, 3000, count)
    features = np.column_stack([area, rooms, year, distance, tax])
    return Table(features, 300_000 + 15_000 * (price - price.mean()) / price.std(), False)


def models(classes: bool) -> dict[str, Any]:
    """Models with scikit-learn's defaults, but for as many steps as they need."""
    if classes:
        network = MLPClassifier(max_iter=500, random_state=0)
        return {"MLPClassifier": network, "LogisticRegression": LogisticRegression(max_iter=1000)}
    network = MLPRegressor(hidden_layer_sizes=(32,), learning_rate_init=0.05, max_iter=3000, random_state=0)
    return {"MLPRegressor": network, "Ridge": Ridge()}


def compare(name: str, table: Table, folder: Path) -> None:
    """Trains, exports and verifies each model at each trust level that takes it."""
    for model_name, model in models(table.classes).items():
        files = exported(f"{name}_{model_name}", table, model, folder)
        for level in LEVELS:
            if level == "encrypted" and model_name.startswith("MLP"):
                continue  # ReLU is no polynomial.
            report = verified(files, level, table.classes)
            print(COLUMNS.format(name, model_name, level, *cells(report)), flush=True)


def exported(name: str, table: Table, model: Any, folder: Path) -> Files:
    """The trained pipeline and its rows. Labels of classes are scikit-learn's own predictions."""
    features = table.features.astype(np.float32)
    training, testing, wanted, truth = train_test_split(features, table.targets, test_size=0.3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).fit(training, wanted)
    files = Files(folder / f"{name}.onnx", folder / f"{name}_train.csv", folder / f"{name}_test.csv")
    files.model.write_bytes(to_onnx(pipeline, training[:1]).SerializeToString())
    write(files.samples, training, pipeline.predict(training) if table.classes else wanted)
    write(files.data, testing, pipeline.predict(testing) if table.classes else truth)
    return files


def write(path: Path, features: np.ndarray, labels: np.ndarray) -> None:
    """A CSV file with a header."""
    names = ",".join([*(f"feature{at}" for at in range(features.shape[1])), "y"])
    np.savetxt(path, np.column_stack([features, labels]), "%.9g", ",", header=names, comments="")


def verified(files: Files, level: str, classes: bool) -> dict[str, Any]:
    """The report of `pronghorn verify` with its default options."""
    command = [sys.executable, "-m", "pronghorn", "verify", str(files.model), "--trust", level, "--json"]
    command += ["--samples", str(files.samples), "--data", str(files.data)]
    command += ["--outputs", "classes" if classes else "values"]
    report: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report


def cells(report: dict[str, Any]) -> list[str]:
    """The figures of a report: of the secure run, over all rows."""
    stats, alike, ratio = report["stats"], "", ""
    if report["accuracy_secure"] is not None:
        alike = f"{100 * report['accuracy_secure']:.2f}"
    if report["regression"] is not None:
        scores = report["regression"]["total"]
        ratio = f"{scores['secure']['rmse'] / scores['floating']['rmse']:.4f}"
    each = (stats["bytes_sent"] + stats["bytes_received"]) / report["images"]
    seconds = 1e3 * stats["seconds"] / report["images"]
    return [alike, ratio, f"{report['relative_error']:.4f}", f"{each:,.0f}", f"{seconds:.3g}"]


if __name__ == "__main__":
    main()
