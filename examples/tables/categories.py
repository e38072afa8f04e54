"""A pipeline of scikit-learn on a table with texts, exported with default options, run by `pronghorn verify`.

    pip install scikit-learn skl2onnx pandas
    python examples/tables/categories.py [--out FOLDER]

The table is made up: 4,000 loans with two numbers, a kind of work, a town, and a grade. Whether one is paid back
depends on all of them. Kinds and towns are encoded within the model, so that clients send rows as they have them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

LEVELS = ("two-party", "client-aided", "encrypted")
WORK = ("clerk", "nurse", "smith", "teacher", "driver", "cook", "none")
TOWNS = tuple(f"town {index}" for index in range(30))
COLUMNS = "{:<20} {:<13} {:>9} {:>9} {:>11}"


def main() -> None:
    """Prints a row for each model and trust level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="keep models and CSV files in this folder")
    options = parser.parse_args()
    loans = table(4000)
    train, test = loans[:3000], loans[3000:]
    print(COLUMNS.format("model", "level", "alike %", "error", "bytes a row"))
    with tempfile.TemporaryDirectory(prefix="pronghorn-categories-") as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        samples, data = folder / "samples.csv", folder / "test.csv"
        train.to_csv(samples, index=False)
        test.to_csv(data, index=False)
        for last in (LogisticRegression(max_iter=1000), MLPClassifier((32,), early_stopping=True, random_state=0)):
            name = type(last).__name__
            file = folder / f"{name}.onnx"
            features = train.drop(columns="label")
            fitted = pipeline(last).fit(features, train["label"])
            file.write_bytes(to_onnx(fitted, features[:1]).SerializeToString())
            for level in LEVELS[:2] if "MLP" in name else LEVELS:
                compare(name, level, file, samples, data)


def table(count: int) -> pd.DataFrame:
    """Loans, and whether each was paid back."""
    random = np.random.default_rng(2)
    loans = pd.DataFrame(
        {
            "amount": random.lognormal(9, 0.6, count).astype(np.float32),
            "age": random.integers(18, 80, count).astype(np.float32),
            "work": random.choice(WORK, count),
            "town": random.choice(TOWNS, count),
            "grade": random.choice(["A", "B", "C", "D"], count),
        }
    )
    of_work = loans["work"].map(dict(zip(WORK, random.normal(0, 1, len(WORK)), strict=True)))
    of_town = loans["town"].map(dict(zip(TOWNS, random.normal(0, 0.7, len(TOWNS)), strict=True)))
    of_grade = loans["grade"].map({"A": 1.0, "B": 0.3, "C": -0.4, "D": -1.2})
    score = of_work + of_town + of_grade + (loans["age"] - 45) / 30 - loans["amount"] / 20_000
    loans["label"] = (score + random.logistic(0, 0.5, count) > 0).astype(int)
    return loans


def pipeline(last: LogisticRegression | MLPClassifier) -> Pipeline:
    """Encoders of all columns, and a model behind them."""
    encoders = [
        ("numbers", StandardScaler(), ["amount", "age"]),
        ("kinds", OneHotEncoder(handle_unknown="ignore"), ["work", "town"]),
        ("grades", OrdinalEncoder(), ["grade"]),
    ]
    return make_pipeline(ColumnTransformer(encoders), last)


def compare(name: str, level: str, model: Path, samples: Path, data: Path) -> None:
    """Prints what a secure run of the test rows has."""
    ask = ["verify", str(model), "--data", str(data), "--samples", str(samples), "--trust", level, "--json"]
    run = subprocess.run([sys.executable, "-m", "pronghorn", *ask], capture_output=True, text=True, check=True)
    report = json.loads(run.stdout)
    alike, error = 100 * report["argmax_agreement"], report["relative_error"]
    sent = (report["stats"]["bytes_sent"] + report["stats"]["bytes_received"]) / report["images"]
    print(COLUMNS.format(name, level, f"{alike:.2f}", f"{error:.4f}", f"{sent:,.0f}"))


if __name__ == "__main__":
    main()
