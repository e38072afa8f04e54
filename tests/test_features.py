"""Raw features of tables, which differ by many powers of two, and regressions."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

import pronghorn
from helpers import mixed, model, node
from pronghorn._inputs import beyond, clamped, only_a_part, planned_bounds, planned_range
from pronghorn.cli import app
from pronghorn.errors import InputError, InputWarning, PrecisionWarning

FLOAT = TensorProto.FLOAT
LEVELS = ["two-party", "client-aided", "encrypted"]
MEANS = np.array([1200.0, 0.05, 2005.0, -3.0], np.float32)
SPREADS = np.array([400.0, 0.01, 8.0, 1.0], np.float32)

RANDOM = np.random.default_rng(11)
"""Of this file alone: other tests keep their numbers."""


def floats(*shape: int) -> np.ndarray:
    """Random float32 numbers around zero."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def rows(count: int) -> np.ndarray:
    """A price, a ratio, a year and something around zero."""
    return (MEANS + SPREADS * floats(count, 4)).astype(np.float32)


def standardised(outputs: int, *, scale: float = 1.0, offset: float = 0.0) -> onnx.ModelProto:
    """A scaler and a layer, as scikit-learn's pipelines are exported."""
    constants = {
        "means": MEANS,
        "spreads": SPREADS,
        "w": scale * floats(4, outputs),
        "b": np.full(outputs, offset, np.float32),
    }
    nodes = [node("Sub", "x means", "c"), node("Div", "c spreads", "s"), node("Gemm", "s w b", "y")]
    return model(nodes, ("N", 4), constants)


def kind(plan: pronghorn.Plan) -> str:
    found = json.loads(plan.to_json())["steps"][0]["kind"]
    return found if isinstance(found, str) else next(iter(found))


@pytest.mark.parametrize("trust", LEVELS)
def test_raw_features_get_scales_of_their_own(trust: str) -> None:
    loaded = pronghorn.load(standardised(3), samples=rows(300))
    plan = loaded.plan(trust)
    assert kind(plan) == "features"
    assert plan.expected_error.aim == 0.01
    assert "feature 1 * 2^" in plan.details()
    assert "(feature 2 - 20" in plan.details()
    report = loaded.verify(rows(60), trust=trust)
    assert report.ok
    assert report.relative_error < 0.03
    assert report.argmax_agreement is not None
    assert report.argmax_agreement > 0.95


@pytest.mark.parametrize("trust", LEVELS)
@pytest.mark.parametrize("size", [1e7, 5e10])
def test_features_may_be_billions(trust: str, size: float) -> None:
    spreads = size * np.array([1, 0.5, 2], np.float32)
    constants = {"w": floats(3, 2) / spreads[:, None], "b": floats(2)}
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 3), constants), samples=spreads * floats(100, 3))
    report = loaded.verify(spreads * floats(20, 3), trust=trust)
    assert report.ok
    assert report.relative_error < 0.06


def test_a_dead_output_takes_no_bits_of_others() -> None:
    constants = {"w": 1e-11 * floats(3, 2) * np.array([1, 0], np.float32), "b": floats(2)}
    samples = 1e11 * floats(100, 3)
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 3), constants), samples=samples)
    assert loaded.verify(samples[:20], secure=False).relative_error < 0.06


@pytest.mark.parametrize("trust", LEVELS)
@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize(("constant", "least"), [(3.5, 1e-6), (2024, 1e-6), (100, 1e-7), (3.5, 1e-10), (1e5, 1e-12)])
def test_a_constant_feature_counts_for_nothing(trust: str, differ: bool, constant: float, least: float) -> None:
    """Its weights are far above the others', as a model has that divides by the deviation and a little more: folded
    into the bias they swallow the others, in floating point too."""
    others = np.float32([1, 100, 1, 0.01, 1]) if differ else np.ones(5, np.float32)
    table = others * floats(100, 5)
    table[:, 2] = constant
    spreads = np.where(np.arange(5) == 2, least, others).astype(np.float32)
    constants = {"m": np.float32([0, 0, constant, 0, 0]), "s": spreads, "w": floats(5, 2), "b": floats(2)}
    nodes = [node("Sub", "x m", "c"), node("Div", "c s", "d"), node("Gemm", "d w b", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 5), constants), samples=table[:80])
    with pytest.warns(PrecisionWarning, match="of feature 2 the samples have one value alone"):
        assert 0 < loaded.plan(trust).expected_error.error < 0.02
    report = loaded.verify(table[80:], trust=trust)
    assert report.ok
    assert report.relative_error < 0.03


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_a_rare_indicator_is_no_constant_to_keep(trust: str) -> None:
    table = floats(80, 5)
    table[:60, 4] = 0
    table[60:, 4] = 1
    constants = {"w": floats(5, 8), "v": floats(8, 2)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "r"), node("MatMul", "r v", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 5), constants), samples=table[:60], weight_bits=6)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the expected error is")
        assert loaded.plan(trust).expected_error.error > 0.01
    assert kind(loaded.plan(trust)) == "input"


def test_outputs_may_be_constant() -> None:
    constants = {"w": np.zeros((3, 2), np.float32), "b": np.array([0.3, -20.0], np.float32)}
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 3), constants), samples=floats(40, 3))
    loaded.plan("two-party")
    found = loaded.compiled("two-party").run_fixed(floats(2, 3))
    np.testing.assert_allclose(found, [[0.3, -20.0]] * 2, rtol=1e-2)


def test_samples_of_zeros_say_nothing() -> None:
    loaded = pronghorn.load(standardised(2), samples=np.zeros((40, 4), np.float32))
    for trust in LEVELS:
        with pytest.raises(pronghorn.PlanError, match="all samples are zero"):
            loaded.plan(trust)


def test_one_sample_tells_little() -> None:
    loaded = pronghorn.load(standardised(2), samples=rows(1), error=2)
    with pytest.warns(PrecisionWarning, match="measured on 1 of the samples"):
        loaded.plan("client-aided")


def test_the_client_scales_its_features() -> None:
    loaded = pronghorn.load(standardised(3), samples=rows(300))
    inputs = rows(20)
    fixed = loaded.compiled("client-aided").run_fixed(inputs)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust="client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
    ):
        np.testing.assert_array_equal(client.predict(inputs), fixed)
        assert client.last_stats is not None
        assert client.last_stats.clamped_inputs == 0
        low, high = client.input_range
        assert low < -5
        assert high > 2000
        # A ratio of 5 fits the widest range, and not its own.
        inputs[:, 1] = 5
        with pytest.warns(InputWarning, match=r"feature 1 reaches from 5 to 5, but the plan is for -?0\.\d+ to 0\.\d+"):
            client.predict(inputs)
        assert client.last_stats.clamped_inputs == 20


@pytest.mark.parametrize("by_feature", [False, True])
def test_clamped_values_are_counted_without_a_secure_run(by_feature: bool) -> None:
    plain = model([node("MatMul", "x w", "y")], ("N", 4), {"w": floats(4, 2)})
    sizes = 1 if by_feature else np.abs(rows(300)).max(axis=0)
    loaded = pronghorn.load(standardised(3) if by_feature else plain, samples=rows(300) / sizes)
    assert kind(loaded.plan("client-aided")) == ("features" if by_feature else "input")
    inputs = rows(20) * np.linspace(0.5, 3, 20, dtype=np.float32)[:, None] / sizes
    secure = loaded.verify(inputs, trust="client-aided")
    assert secure.stats is not None
    assert secure.clamped_inputs == secure.stats.clamped_inputs > 0
    assert loaded.verify(inputs, trust="client-aided", secure=False).clamped_inputs == secure.clamped_inputs


def test_bounds_are_those_of_each_feature() -> None:
    features = [{"exponent": 0, "offset": 0.0}, {"exponent": 4, "offset": 2000.0}]
    value = {"low": -32, "high": 64, "fraction_bits": 2}
    plan = json.dumps({"steps": [{"kind": {"features": features}, "value": value}]})
    low, high = planned_bounds(plan)
    assert (low.tolist(), high.tolist()) == ([-8, 1999.5], [16, 2001])
    assert planned_range(plan) == (-8, 2001)
    plain = planned_bounds(json.dumps({"steps": [{"kind": "input", "value": value}]}))
    assert tuple(map(float, plain)) == (-8, 16)
    table = np.array([[3, 2000], [9, 2000.5]], np.float32)
    assert beyond(table, (low, high)) is None
    assert "feature 1 reaches from 0 to 0" in str(beyond(table * [[1, 0]], (low, high)))
    assert "the inputs reach from 3 to 2000" in str(beyond(table, plain))
    assert only_a_part(table / 1e6, (low, high)) is None
    assert only_a_part(table / 1e6, plain) is not None


def test_a_price_is_as_precise_as_its_spread() -> None:
    """The mean of 300,000 counts for nothing in the error that is aimed at."""
    loaded = pronghorn.load(standardised(1, scale=7500, offset=300_000), samples=rows(300))
    inputs = rows(200)
    floating = loaded.run_float(inputs)
    noise = 5000 * RANDOM.standard_normal(len(inputs))
    prices = floating[:, 0] + noise
    report = loaded.verify(inputs, prices, secure=False)
    assert report.regression is not None
    total = report.regression.total
    assert total.floating.rmse == pytest.approx(float(np.sqrt(np.mean(noise**2))), rel=1e-3)
    assert total.floating.r2 == pytest.approx(1 - np.sum(noise**2) / np.sum((prices - prices.mean()) ** 2), rel=1e-3)
    assert total.secure.rmse == pytest.approx(total.floating.rmse, rel=0.02)
    assert total.fixed == total.secure
    assert "against the labels, float model (onnxruntime): RMSE" in str(report)
    assert "against the labels, fixed-point oracle: RMSE" in str(report)
    assert "against the labels, secure run" not in str(report)
    assert json.loads(report.to_json())["regression"]["total"]["floating"]["r2"] == total.floating.r2
    # The noise of ciphertexts is no more than a part of the spread, either.
    encrypted = loaded.verify(inputs, prices, trust="encrypted")
    assert encrypted.regression is not None
    assert encrypted.regression.total.secure.rmse == pytest.approx(total.floating.rmse, rel=0.02)
    assert "against the labels, secure run: RMSE" in str(encrypted)


def test_each_output_has_its_error() -> None:
    proto = standardised(3)
    weights = next(tensor for tensor in proto.graph.initializer if tensor.name == "w")
    scaled = onnx.numpy_helper.to_array(weights) * np.array([1, 1, 1000], np.float32)
    weights.CopyFrom(onnx.numpy_helper.from_array(scaled, "w"))
    loaded = pronghorn.load(proto, samples=rows(300))
    plan = loaded.plan()
    errors = plan.expected_error.outputs
    assert len(errors) == 3
    # Each is as precise for its size, whose powers of two the client takes back.
    assert all(found.error < 0.02 for found in errors)
    assert 100 * errors[0].rmse < errors[2].rmse
    assert plan.expected_error.error < 0.02
    assert "scales of outputs: " in str(plan)
    assert str(plan).count("expected error") == 4
    assert "  output 2: expected error 0.0" in str(plan)
    inputs = rows(50)
    report = loaded.verify(inputs, loaded.run_float(inputs) + 0.25, outputs="values", secure=False)
    assert report.expected_errors == errors
    assert report.regression is not None
    assert [scores.floating.rmse for scores in report.regression.outputs] == pytest.approx([0.25] * 3, rel=1e-3)
    assert "output 1: RMSE" in str(report)
    many = pronghorn.load(standardised(12), samples=rows(100)).plan()
    assert "of 12 outputs: expected error" in str(many)
    assert "output 1:" not in str(many)


def test_fractions_as_labels_are_values() -> None:
    loaded = pronghorn.load(standardised(3), samples=rows(100))
    report = loaded.verify(rows(10), floats(10, 3), secure=False)
    assert (report.outputs, report.accuracy_float) == ("values", None)
    with pytest.raises(InputError, match=r"3 numbers for each of 10 images"):
        loaded.verify(rows(10), floats(10), outputs="values")
    with pytest.raises(InputError, match=r"one integer for each of 10 images"):
        loaded.verify(rows(10), floats(10), outputs="classes")
    with pytest.raises(InputError, match="numbers are needed"):
        loaded.verify(rows(10), ["a"] * 10)


def written(tmp_path: Path, targets: np.ndarray | None, name: str = "price") -> Path:
    table = rows(40)
    columns = table if targets is None else np.column_stack([table, targets])
    header = "a,b,c,d" + ("" if targets is None else f",{name}")
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header, *(",".join(f"{value:.6g}" for value in row) for row in columns)]))
    return path


def verified(tmp_path: Path, proto: onnx.ModelProto, data: Path, *options: str) -> tuple[str, int]:
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    ask = ["verify", str(tmp_path / "m.onnx"), "--no-secure", "--data", str(data), *options]
    found = CliRunner().invoke(app, ask)
    return found.output, found.exit_code


def test_the_command_line_scores_regressions(tmp_path: Path) -> None:
    one = standardised(1, scale=7500, offset=300_000)
    prices = written(tmp_path, 300_000 + 15_000 * floats(40))
    output, code = verified(tmp_path, one, prices, "--labels", "price")
    assert code == 0, output
    assert "against the labels, float model (onnxruntime): RMSE" in output
    assert ", R2 " in output
    # A column that is called y needs no option.
    output, code = verified(tmp_path, one, written(tmp_path, 2.5 * floats(40), "y"))
    assert code == 0, output
    assert "against the labels, fixed-point oracle: RMSE" in output


def test_plans_leave_a_column_out(tmp_path: Path) -> None:
    """Of the data, by its name; samples to verify with need not have it."""
    one = standardised(1)
    (tmp_path / "m.onnx").write_bytes(one.SerializeToString())
    prices = written(tmp_path, floats(40))
    ask = ["plan", str(tmp_path / "m.onnx"), "--data", str(prices)]
    assert CliRunner().invoke(app, ask).exit_code == 2
    found = CliRunner().invoke(app, [*ask, "--labels", "price"])
    assert found.exit_code == 0, found.output
    data = prices.rename(tmp_path / "data.csv")
    output, code = verified(tmp_path, one, data, "--labels", "price", "--samples", str(written(tmp_path, None)))
    assert code == 0, output
    assert "RMSE" in output


def test_without_a_secure_run_nothing_is_said_of_one() -> None:
    loaded = pronghorn.load(standardised(3), samples=rows(64))
    report = loaded.verify(rows(8), np.zeros(8, np.int64), secure=False)
    assert (report.ok, report.disagreements, report.accuracy_secure) == (None, None, None)
    assert report.accuracy_fixed is not None


def test_labels_that_are_ignored_are_named(tmp_path: Path) -> None:
    output, code = verified(tmp_path, standardised(3), written(tmp_path, floats(40), "y"))
    assert code == 0, output
    assert "labels beside the data are ignored" in " ".join(output.split())


@pytest.mark.parametrize("trust", LEVELS)
def test_pipelines_of_scikit_learn_classify_alike(trust: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    skl2onnx = pytest.importorskip("skl2onnx")
    data = datasets.load_breast_cancer()
    features = data.data.astype(np.float32)
    trained = pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression())
    trained.fit(features[:400], data.target[:400])
    loaded = pronghorn.load(skl2onnx.to_onnx(trained, features[:1]), samples=features[:400])
    assert kind(loaded.plan(trust)) == "features"
    found = loaded.classes(loaded.compiled(trust).run_fixed(features[400:]))
    assert np.mean(found == trained.predict(features[400:])) >= 0.99


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_columns_are_scaled_behind_their_selection(trust: str) -> None:
    """As scikit-learn's ColumnTransformer exports them."""
    spreads = np.float32([3e5, 1e8, 20, 0.01, 1])
    constants = {
        "i": np.array([3, 0, 1]),
        "j": np.array([2, 4]),
        "m": np.float32([0.02, 1e6, 1.5e9]),
        "s": spreads[[3, 0, 1]],
        "t": np.float32([20, 1]),
        "w": floats(5, 3),
    }
    nodes = [
        node("Gather", "x i", "a", axis=1),
        node("Sub", "a m", "b"),
        node("Div", "b s", "c"),
        node("Gather", "x j", "d", axis=1),
        node("Div", "d t", "e"),
        node("Concat", "c e", "f", axis=1),
        node("MatMul", "f w", "y"),
    ]
    table = np.float32([1e6, 1.5e9, 0, 0.02, 0]) + spreads * floats(160, 5)
    loaded = pronghorn.load(model(nodes, ("N", 5), constants), samples=table[:120])
    report = loaded.verify(table[120:], trust=trust)
    assert report.ok
    assert report.relative_error < 0.06


def test_a_wrong_sample_does_not_hide_the_others() -> None:
    table = np.float32([1e5, 1, 10]) * floats(200, 3)
    table[77, 0] = 1e12
    constants = {"w": floats(3, 8) / np.float32([[1e5], [1], [10]]), "v": floats(8, 2)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "r"), node("MatMul", "r v", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 3), constants), samples=table)
    says = r"expected error is [\s\S]* Value 0 of sample 77 is more than 1000000 times as large"
    with pytest.raises(pronghorn.PlanError, match=says):
        loaded.plan("two-party")


def test_equal_samples_are_one() -> None:
    loaded = pronghorn.load(standardised(2), samples=np.repeat(rows(2), 30, axis=0), error=2)
    with pytest.warns(PrecisionWarning, match="measured on 2 of the samples"):
        loaded.plan("client-aided")


def sizes(*nodes: onnx.NodeProto) -> pronghorn.Model:
    """A layer with outputs of 10^5 and 1, and what follows."""
    constants = {"w": floats(3, 2) * np.float32([1e5, 1])}
    return pronghorn.load(model(nodes, ("N", 3), constants), samples=floats(60, 3))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_small_outputs_beside_large_ones_are_precise(trust: str) -> None:
    loaded = sizes(node("MatMul", "x w", "y"))
    inputs = floats(40, 3)
    plan = loaded.plan(trust)
    assert all(found.error < 0.05 for found in plan.expected_error.outputs)
    report = loaded.verify(inputs, trust=trust)
    assert report.ok
    found = loaded.compiled(trust).run_oracle(inputs, None)[1].reshape(40, 2)
    wanted = loaded.run_float(inputs).reshape(40, 2)
    errors = np.sqrt(((found - wanted) ** 2).mean(0)) / wanted.std(0)
    assert (errors < 0.1).all(), errors


def test_large_outputs_hide_no_others() -> None:
    """A ReLU takes no factors up."""
    loaded = sizes(node("MatMul", "x w", "s"), node("Relu", "s", "y"))
    with pytest.warns(PrecisionWarning, match=r"larger outputs hide the expected error of output 1 \("):
        loaded.plan("two-party")


@pytest.mark.parametrize("trust", LEVELS)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1e-9), (1, 1e-12), (1e-9, 1)])
def test_units_may_be_tiny(trust: str, inputs: float, outputs: float) -> None:
    constants = {"w": floats(4, 2) * np.float32(outputs / inputs), "b": floats(2) * np.float32(outputs)}
    table = np.float32(inputs) * floats(80, 4)
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 4), constants), samples=table)
    report = loaded.verify(table[:40], trust=trust)
    assert report.ok
    assert report.relative_error < 0.06


def test_layer_norms_of_raw_features_are_planned_soon() -> None:
    """Its variance is 10^18, which no table of an entry for each integer holds."""
    constants = {"w": floats(4, 8), "g": np.ones(8, np.float32), "o": np.zeros(8, np.float32), "v": floats(8, 1)}
    nodes = [
        node("MatMul", "x w", "a"),
        node("LayerNormalization", "a g o", "n", axis=-1),
        node("MatMul", "n v", "y"),
    ]
    loaded = pronghorn.load(model(nodes, ("N", 4), constants), samples=np.float32(1e9) * floats(80, 4), error=2)
    loaded.plan("client-aided")


@pytest.mark.parametrize("trust", LEVELS)
@pytest.mark.parametrize("constant", [2e6, 1e8])
def test_a_large_constant_output_hides_no_other(trust: str, constant: float) -> None:
    """Where bits do not suffice for both, the plan is refused or says so."""
    weights = floats(4, 2) * np.array([1, 0], np.float32)
    constants = {"w": weights, "b": np.array([0, constant], np.float32)}
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 4), constants), samples=floats(80, 4), error=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        expected = loaded.plan(trust).expected_error
    inputs = floats(100, 4)
    found, wanted = loaded.compiled(trust).run_fixed(inputs)[:, 0], loaded.run_float(inputs)[:, 0]
    error = float(np.sqrt(np.mean((found - wanted) ** 2)) / wanted.std())
    assert expected.about_mean
    assert error < 1.5 * expected.error + 0.01


def test_one_wrong_sample_hides_no_noise() -> None:
    table = floats(1000, 4)
    table[7] *= 1e4
    constants = {"w": floats(4, 2), "b": floats(2)}
    loaded = pronghorn.load(model([node("Gemm", "x w b", "y")], ("N", 4), constants), samples=table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        assert loaded.verify(floats(100, 4), trust="encrypted").relative_error < 0.03


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("tiny", [1e-9, 1e-12, 1e-20])
@pytest.mark.parametrize("kind", ["LeakyRelu", "Relu", "Mul", "Square", "Both"])
def test_a_branch_may_be_tiny(trust: str, tiny: float, kind: str) -> None:
    """As that of a residual layer whose weights decayed."""
    constants = {"w": floats(4, 3), "v": np.float32(tiny) * floats(4, 3), "m": floats(3, 3)}
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "x v", "b")]
    branches = {
        "Mul": [node("Mul", "b a", "c")],
        "Square": [node("Mul", "b b", "c")],
        "Both": [node("Mul", "b b", "s"), node("Mul", "b a", "p"), node("Add", "s p", "c")],
    }
    nodes += [*branches.get(kind, [node(kind, "b", "c")]), node("MatMul", "c m", "d"), node("Add", "a d", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 4), constants), samples=floats(80, 4))
    assert loaded.plan(trust).expected_error.error < 0.05
    inputs = np.clip(floats(40, 4), -2, 2)
    report = loaded.verify(inputs, trust=trust)
    assert report.ok
    assert report.relative_error < 0.07


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_positive_features_are_not_clamped(trust: str) -> None:
    table = np.abs(RANDOM.uniform([59, 29.5 / 1024], [100, 50 / 1024], (400, 2))).astype(np.float32)
    constants = {"w": (floats(2, 2) / np.float32([[20], [0.01]]))}
    loaded = pronghorn.load(model([node("MatMul", "x w", "y")], ("N", 2), constants), samples=table)
    low, high = planned_bounds(loaded.plan(trust).to_json())
    assert np.all(low <= table.min(axis=0))
    assert np.all(high >= table.max(axis=0))


def test_rare_events_are_no_wrong_samples() -> None:
    table = floats(400, 2)
    table[:, 0] = np.where(np.arange(400) % 20 == 0, 1 + abs(table[:, 0]), -abs(table[:, 0]))
    constants = {"w": np.eye(2, 1, dtype=np.float32)}
    nodes = [node("MatMul", "x w", "a"), node("LeakyRelu", "a", "y", alpha=0.01)]
    loaded = pronghorn.load(model(nodes, ("N", 2), constants), samples=table)
    assert loaded.plan().expected_error.error < 0.03


def test_clamped_inputs_are_named() -> None:
    loaded = pronghorn.load(standardised(3), samples=rows(300))
    inputs = rows(20)
    inputs[3, 0] = 9e3
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust="client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
    ):
        with pytest.warns(pronghorn.errors.RangeWarning, match=r"1 input has values beyond .* \(x\[3\]\)"):
            client.predict(inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pronghorn.errors.RangeWarning)
            client.predict(inputs[:3])


def test_a_feature_that_keeps_its_value_is_not_scaled_wrongly() -> None:
    features = [{"exponent": 0, "offset": 0.0}, {"exponent": 64, "offset": 2024.0}]
    value = {"low": -32, "high": 64, "fraction_bits": 2}
    bounds = planned_bounds(json.dumps({"steps": [{"kind": {"features": features}, "value": value}]}))
    table = np.array([[3, 2025], [9, 2024]], np.float32)
    assert beyond(table, bounds) is None
    assert "feature 0 reaches" in str(beyond(table * 100, bounds))
    assert not clamped(table, bounds).any()
    # One that was never set.
    features[1]["offset"] = 0.0
    bounds = planned_bounds(json.dumps({"steps": [{"kind": {"features": features}, "value": value}]}))
    assert beyond(table, bounds) is None
    assert not clamped(table, bounds).any()


def test_series_of_unlike_features_are_told_to_scale() -> None:
    spreads = np.array([1e-3, 1, 1e4], np.float32)
    constants = {"s": spreads, "w": floats(24, 2)}
    nodes = [node("Div", "x s", "d"), node("Flatten", "d", "f"), node("MatMul", "f w", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 8, 3), constants), samples=spreads * floats(80, 8, 3))
    with pytest.raises(pronghorn.PlanError, match="bring each feature to a like size before sending"):
        loaded.plan()


ENDS: dict[str, list[onnx.NodeProto]] = {
    "one list": [node("Concat", "s i", "q", axis=1), node("Gemm", "q wide", "y")],
    "embedded": [
        node("Gemm", "i e", "emb"),
        node("Concat", "s emb", "q", axis=1),
        node("Gemm", "q deep", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r last", "y"),
    ],
    "wide and deep": [
        node("Slice", "i from to axis", "some"),
        node("Concat", "s some", "p", axis=1),
        node("Gemm", "p deep", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r last", "d"),
        node("Concat", "s i", "q", axis=1),
        node("Gemm", "q wide", "w"),
        node("Add", "d w", "y"),
    ],
    "bounded": [
        node("Concat", "s i", "q", axis=1),
        node("Clip", "q low high", "bound"),
        node("Gemm", "bound wide", "y"),
    ],
}


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("form", ENDS)
def test_raw_numbers_beside_indicators(form: str, trust: str) -> None:
    """Numbers that the model standardises, and categories that it embeds or takes as they are."""
    nodes = [
        node("Split", "x sizes", "numbers i", axis=1),
        node("Sub", "numbers means", "c"),
        node("Div", "c spreads", "s"),
        *ENDS[form],
    ]
    constants = {"sizes": np.array([4, 3]), "means": MEANS, "spreads": SPREADS, "e": floats(3, 2), "deep": floats(6, 8)}
    constants |= {"last": floats(8, 2), "wide": floats(7, 2), "low": np.float32(-3), "high": np.float32(3)}
    constants |= {"from": np.array([0]), "to": np.array([2]), "axis": np.array([1])}
    used = {name for each in nodes for name in each.input}
    proto = model(nodes, ("N", 7), {name: array for name, array in constants.items() if name in used})
    table = np.c_[rows(400), np.eye(3)[RANDOM.integers(0, 3, 400)]].astype(np.float32)
    loaded = pronghorn.load(proto, samples=table[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = loaded.plan(trust)
    assert plan.expected_error.error <= 1.5 * plan.expected_error.aim
    assert loaded.verify(table[300:], trust=trust, secure=False).relative_error < 3 * plan.expected_error.aim
    assert loaded.verify(table[300:302], trust=trust).disagreements == 0


@pytest.mark.parametrize(("code", "every"), [(-9999.0, 20), (1e6, 9)])
def test_placeholders_are_named(code: float, every: int) -> None:
    coded = np.random.default_rng(3).normal(size=(200, 4)).astype(np.float32)
    coded[::every, 2] = code
    proto = model([node("Gemm", "x w", "y")], ("N", 4), {"w": np.ones((4, 1), np.float32)})
    with pytest.warns(
        InputWarning, match=rf"feature 2 is {re.escape(format(code, 'g'))} in {len(coded[::every])} of 200 samples"
    ):
        pronghorn.load(proto, samples=coded)
    with pytest.warns(InputWarning, match="feature 'age' is"):
        pronghorn.load(proto).calibrated(coded, columns=["id", "bmi", "age", "rate"])


def test_other_numbers_that_repeat_are_no_placeholders() -> None:
    made = np.random.default_rng(4)
    table = np.stack(
        [
            made.integers(0, 2, 200),  # Indicators.
            np.maximum(made.normal(size=200), 0),  # Half of them are zeros.
            np.where(made.random(200) < 0.05, 99_999, made.exponential(8_000, 200)),  # As capital gains are capped.
            np.full(200, 3.0),
            made.choice([1, 10, 100, 1000], 200),
            np.where(made.random(200) < 0.2, made.normal(1000, 20, 200), 0),
        ],
        axis=1,
    )
    weights = np.array([[1], [1], [1e-4], [1], [1e-2], [1e-2]], np.float32)
    proto = model([node("Gemm", "x w", "y")], ("N", 6), {"w": weights})
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        pronghorn.load(proto, samples=table.astype(np.float32))


@pytest.mark.parametrize("outputs", [1, 2])
def test_far_results_do_not_hide_errors_of_the_others(outputs: int) -> None:
    """Of several outputs, too, though they may be scores of classes."""
    made = np.random.default_rng(6)
    table = made.normal(size=(400, 4))
    # Codes that differ, so that no number repeats.
    table[::7, 2] = made.uniform(-10_000, -9_000, len(table[::7]))
    weights = np.array([[1, -1], [0.5, 1], [1, 1], [-1, 0.5]], np.float32)[:, :outputs]
    proto = model([node("Gemm", "x w", "y")], ("N", 4), {"w": weights})
    loaded = pronghorn.load(proto, samples=table.astype(np.float32))
    with pytest.warns(PrecisionWarning, match="lie far from the others, and hide the expected error"):
        loaded.plan("client-aided")


def test_rare_results_are_told() -> None:
    made = np.random.default_rng(8)
    table = np.abs(made.normal(size=(200, 3))).astype(np.float32)
    nodes = [node("Gemm", "x w", "h"), node("Relu", "h", "r"), node("Gemm", "r v", "y")]
    constants = {"w": -np.ones((3, 4), np.float32), "v": np.ones((4, 1), np.float32)}
    for rows, says in (([], "all 100 samples have the same results"), ([11], "about 1 of 100 samples have nearly all")):
        table[rows] = -1 - np.abs(table[rows])
        loaded = pronghorn.load(model(nodes, ("N", 3), constants), samples=table)
        with pytest.warns(PrecisionWarning, match=says):
            plan = loaded.plan()
    # The one is not among the samples that are tested first.
    assert plan.expected_error.error > 0


def test_values_of_one_sign_may_have_the_other() -> None:
    """A few samples tell little of it."""
    made = np.random.default_rng(9)
    table = made.uniform(0.1, 0.9, size=(16, 1)).astype(np.float32)
    nodes = [node("Gemm", "x w b", "h"), node("Tanh", "h", "t"), node("Gemm", "t v", "y")]
    constants = {"w": np.ones((1, 2), np.float32), "b": np.array([-0.08, 0], np.float32)}
    constants["v"] = np.array([[1], [1e-3]], np.float32)
    loaded = pronghorn.load(model(nodes, ("N", 1), constants), samples=table)
    others = np.array([[0.02], [0.04], [0.06]], np.float32)
    found, wanted = loaded.compiled("two-party").run_oracle(others, None)[1], loaded.run_float(others)
    np.testing.assert_allclose(np.reshape(found, wanted.shape), wanted, atol=0.02)


UNLIKE = np.array([1e5, 50, 0.5, 3], np.float32)
"""Sizes of columns: an income, an age, a share, a count."""

ON_COLUMNS: dict[str, list[onnx.NodeProto]] = {
    "product": [
        node("Gather", "x first", "a", axis=1),
        node("Gather", "x second", "b", axis=1),
        node("Mul", "a b", "p"),
        node("Div", "p unit", "q"),
    ],
    "product of standardised": [
        node("Sub", "x means", "c"),
        node("Div", "c spreads", "s"),
        node("Gather", "s first", "a", axis=1),
        node("Gather", "s second", "b", axis=1),
        node("Mul", "a b", "p"),
        node("Concat", "p s", "q", axis=1),
    ],
    "ratios": [
        node("Gather", "x first", "a", axis=1),
        node("Gather", "x second", "b", axis=1),
        node("Gather", "x third", "c", axis=1),
        node("Div", "c a", "r"),
        node("Mul", "b c", "p"),
        node("Concat", "r p", "j", axis=1),
        node("Div", "j ratios", "q"),
    ],
    "logarithms": [node("Add", "x one", "o"), node("Log", "o", "q")],
    "squares": [node("Mul", "x x", "p"), node("Div", "p squares", "q")],
    "embedded": [
        node("Unsqueeze", "x axis", "u"),
        node("Mul", "u embedding", "e"),
        node("Relu", "e", "r"),
        node("Flatten", "r", "q"),
    ],
}


@pytest.mark.parametrize("form", ON_COLUMNS)
def test_functions_of_unlike_columns(form: str) -> None:
    """Products and functions of raw features, which no layer reads before."""
    draw = np.random.default_rng(11)
    table = UNLIKE * draw.lognormal(0, 0.5, (500, 4)).astype(np.float32)
    constants: dict[str, Any] = {"first": np.array([0]), "second": np.array([3]), "one": np.float32(1)}
    constants |= {"unit": np.float32(1e5), "axis": np.array([2]), "squares": UNLIKE**2, "means": UNLIKE}
    constants |= {"spreads": UNLIKE / 2, "embedding": (draw.normal(size=(4, 3)) / UNLIKE[:, None]).astype(np.float32)}
    constants |= {"third": np.array([1]), "ratios": np.array([5e-4, 150], np.float32)}
    count = {"product": 1, "product of standardised": 5, "embedded": 12, "ratios": 2}.get(form, 4)
    constants["w"] = draw.normal(size=(count, 2)).astype(np.float32)
    nodes = [*ON_COLUMNS[form], node("Gemm", "q w", "y")]
    used = {name for each in nodes for name in each.input}
    proto = model(nodes, ("N", 4), {name: array for name, array in constants.items() if name in used})
    loaded = pronghorn.load(proto, samples=table[:400])
    expected = loaded.plan("two-party").expected_error
    assert expected.error <= 1.5 * expected.aim
    assert loaded.verify(table[400:], trust="two-party", secure=False).relative_error < 3 * expected.aim


def test_numbers_that_float32_does_not_hold_are_named() -> None:
    """Times in seconds, of ten minutes: the network sees few different numbers."""
    proto = model([node("Gemm", "x w", "y")], ("N", 2), {"w": np.ones((2, 1), np.float32)})
    seconds = 1_700_000_000 + np.arange(600.0)
    for rows in (np.c_[np.arange(600.0), seconds], np.c_[np.arange(600), seconds].astype(np.int64)):
        with pytest.warns(InputWarning, match=r"samples\[:, 1\] has numbers near 1.7e\+09 that differ by 599"):
            pronghorn.load(proto, samples=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        pronghorn.load(proto, samples=np.c_[np.arange(600.0), np.arange(600) % 7 + 1e5])
        # A number that is rounded in several ways, and whole numbers beyond float32 that differ by much.
        pronghorn.load(proto, samples=np.c_[np.arange(600.0), np.arange(600) * 0.1 - np.arange(600) * 0.3 / 3 + 0.1])
        large = np.uint32(3_000_000_000) + 1_000_003 * np.arange(600, dtype=np.uint32)
        pronghorn.load(proto, samples=np.c_[np.arange(600, dtype=np.uint32), large])


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_tables_of_whole_numbers_are_no_pixels(kind: type) -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": np.ones((3, 1), np.float32)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        pronghorn.load(proto, samples=RANDOM.integers(0, 200, (300, 3)).astype(kind))


FRONTS = {
    "shifted": [node("Sub", "s three", "c"), node("Div", "c six", "f")],
    "clipped": [node("Clip", "s low high", "f")],
    "slope": [node("LeakyRelu", "s", "f", alpha=0.1)],
    "differences": [
        node("Slice", "s from1 to48 axis1", "late"),
        node("Slice", "s from0 to47 axis1", "early"),
        node("Sub", "late early", "f"),
    ],
}
"""What becomes of a series before windows slide over it."""


@pytest.mark.parametrize("front", FRONTS)
def test_steps_of_a_series_beside_a_table_share_a_scale(front: str) -> None:
    """A pulse may be at a step where no sample has one."""
    draw = np.random.default_rng(5)

    def rows(count: int) -> dict[str, np.ndarray]:
        pulse = np.arange(48) == draw.integers(0, 48, (count, 1))
        series = draw.uniform(5, 30, (count, 1)) * pulse + 0.05 * draw.standard_normal((count, 48))
        table = MEANS[:3] + SPREADS[:3] * draw.standard_normal((count, 3))
        return {"s": series.astype(np.float32), "t": table.astype(np.float32)}

    whole = {"from0": [0], "from1": [1], "to47": [47], "to48": [48], "axis1": [1]}
    constants: dict[str, Any] = {name: np.array(numbers, np.int64) for name, numbers in whole.items()}
    constants |= {"three": np.float32(3), "six": np.float32(6), "low": np.float32(-1), "high": np.float32(25)}
    constants |= {"means": MEANS[:3], "spreads": SPREADS[:3]}
    constants |= {"k": draw.standard_normal((6, 1, 5)).astype(np.float32) / 3}
    constants |= {"w": draw.standard_normal((9, 1)).astype(np.float32)}
    nodes = [
        *FRONTS[front],
        node("Unsqueeze", "f axis1", "one"),
        node("Conv", "one k", "conv", pads=[2, 2]),
        node("Relu", "conv", "relu"),
        node("ReduceMean", "relu", "mean", axes=[2], keepdims=0),
        node("Sub", "t means", "near"),
        node("Div", "near spreads", "scaled"),
        node("Concat", "mean scaled", "joined", axis=1),
        node("MatMul", "joined w", "y"),
    ]
    used = {name for each in nodes for name in each.input}
    used_constants = {name: array for name, array in constants.items() if name in used}
    inputs = {"s": (FLOAT, ("N", 48)), "t": (FLOAT, ("N", 3))}
    loaded = pronghorn.load(mixed(nodes, inputs, used_constants), samples=rows(40))
    found = loaded.verify(rows(400), secure=False, outputs="values")
    assert found.relative_error < 0.03
    assert found.clamped_inputs == 0


@pytest.mark.parametrize("flags", [0, 1])
def test_products_with_a_rare_flag_have_room(flags: int) -> None:
    """Samples hardly tell how large they are. Where results with it are far off, a warning says so."""
    draw = np.random.default_rng(6)

    def rows(count: int, share: float) -> np.ndarray:
        price, other = np.exp(0.5 * draw.standard_normal(count)), draw.standard_normal(count)
        return np.stack([price, other, draw.random(count) < share], 1).astype(np.float32)

    nodes = [
        node("Gather", "x zero", "price", axis=1),
        node("Gather", "x two", "flag", axis=1),
        node("Mul", "price flag", "product"),
        node("Concat", "x product", "joined", axis=1),
        node("MatMul", "joined w", "y"),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "w": np.array([[0.4], [-0.3], [0.2], [0.7]], np.float32)}
    samples = rows(400, 0)
    samples[:flags, 2] = 1
    loaded = pronghorn.load(model(nodes, ("N", 3), constants), samples=samples)
    if flags == 0:
        with pytest.warns(PrecisionWarning, match="functions read column 2, which has one value in nearly all"):
            loaded.plan("two-party")
    assert loaded.verify(rows(1000, 0.05), secure=False, outputs="values").relative_error < 0.06
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        pronghorn.load(model(nodes, ("N", 3), constants), samples=rows(400, 0.1)).plan("two-party")


def test_each_rare_flag_of_a_sum_is_tried_for_itself() -> None:
    """`x[0] * (1 + 20 x[2] + 1e4 x[3]) + x[1]`: the errors of the last hide none of those of the one before."""
    draw = np.random.default_rng(8)
    constants = {name: np.array([at]) for at, name in enumerate(["zero", "one", "two", "three"])}
    constants |= {"small": np.float32(20), "large": np.float32(1e4), "unit": np.float32(1)}
    nodes = [
        *[node("Gather", f"x {name}", f"x{at}", axis=1) for at, name in enumerate(["zero", "one", "two", "three"])],
        node("Mul", "x2 small", "little"),
        node("Mul", "x3 large", "much"),
        node("Add", "little much", "both"),
        node("Add", "both unit", "factor"),
        node("Mul", "x0 factor", "product"),
        node("Add", "product x1", "y"),
    ]
    samples = draw.standard_normal((300, 4)).astype(np.float32)
    samples[:, 2:] = 0
    loaded = pronghorn.load(model(nodes, ("N", 4), constants), samples=samples)
    with pytest.warns(PrecisionWarning, match="functions read columns 2, 3, which have one value") as told:
        loaded.plan("two-party")
    assert any(each.filename == __file__ for each in told if "columns 2, 3" in str(each.message))


def test_classes_of_a_rare_flag_are_kept() -> None:
    """The largest of `x[0] * (1 + 40 x[2])`, `x[1]` and 0.3, where no sample has the flag."""
    draw = np.random.default_rng(12)
    constants = {name: np.array([at]) for at, name in enumerate(["zero", "one", "two"])}
    constants |= {"large": np.float32(40), "unit": np.float32(1), "nothing": np.float32(0), "level": np.float32(0.3)}
    nodes = [
        *[node("Gather", f"x {name}", f"x{at}", axis=1) for at, name in enumerate(["zero", "one", "two"])],
        node("Mul", "x2 large", "much"),
        node("Add", "much unit", "factor"),
        node("Mul", "x0 factor", "product"),
        node("Mul", "x1 nothing", "zeros"),
        node("Add", "zeros level", "third"),
        node("Mul", "x1 large", "second"),
        node("Concat", "product second third", "joined", axis=1),
        node("ArgMax", "joined", "y", axis=1, keepdims=0),
    ]

    def rows(count: int, share: float) -> np.ndarray:
        rows = draw.standard_normal((count, 3)).astype(np.float32)
        rows[:, 2] = draw.random(count) < share
        return rows

    loaded = pronghorn.load(model(nodes, ("N", 3), constants), samples=rows(300, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        found = loaded.verify(rows(1000, 0.5), secure=False)
    assert found.argmax_agreement > 0.95


@pytest.mark.parametrize("usual", [1.0, -1.0, 37.0])
def test_products_with_a_column_that_is_nearly_always_the_same_have_room(usual: float) -> None:
    """`x[0] * (x[2] - usual) + x[1]`, of an inverted flag, of one from -1 to 1, and of a number that stands for missing
    ones, of which a sample has another."""
    draw = np.random.default_rng(9)
    other = {1.0: 0.0, -1.0: 1.0, 37.0: 61.0}[usual]
    constants = {name: np.array([at]) for at, name in enumerate(["zero", "one", "two"])}
    constants |= {"usual": np.float32(usual)}
    nodes = [
        *[node("Gather", f"x {name}", f"x{at}", axis=1) for at, name in enumerate(["zero", "one", "two"])],
        node("Sub", "x2 usual", "away"),
        node("Mul", "x0 away", "product"),
        node("Add", "product x1", "y"),
    ]

    def rows(count: int, share: float) -> np.ndarray:
        rows = draw.standard_normal((count, 3)).astype(np.float32)
        rows[:, 2] = np.where(draw.random(count) < share, other, usual)
        return rows

    samples = rows(300, 0)
    samples[: int(usual == 37.0), 2] = other
    loaded = pronghorn.load(model(nodes, ("N", 3), constants), samples=samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        found = loaded.verify(rows(1000, 0.05), secure=False, outputs="values")
    assert found.relative_error < 0.06


def test_a_constant_beside_raw_products_costs_no_precision() -> None:
    """As scikit-learn's PolynomialFeatures exports it, before a scaler."""
    raw = rows(600)[:, :2]
    features = np.stack([np.ones(600), *raw.T, raw[:, 0] * raw[:, 1]], 1)
    spreads = features.std(axis=0)
    constants = {
        "first": np.array([0]),
        "second": np.array([1]),
        "unit": np.array([1.0], np.float32),
        "means": features.mean(axis=0).astype(np.float32),
        "spreads": np.where(spreads == 0, 1, spreads).astype(np.float32),
        "w": np.array([[3.0], [-0.3], [0.2], [0.7]], np.float32),
    }
    nodes = [
        node("Gather", "x first", "price", axis=1),
        node("Gather", "x second", "ratio", axis=1),
        node("Mul", "price ratio", "product"),
        node("Shape", "price", "shape"),
        node("Expand", "unit shape", "ones"),
        node("Concat", "ones price ratio product", "joined", axis=1),
        node("Sub", "joined means", "c"),
        node("Div", "c spreads", "s"),
        node("MatMul", "s w", "y"),
    ]
    loaded = pronghorn.load(model(nodes, ("N", 2), constants), samples=raw[:300])
    assert loaded.verify(raw[300:], secure=False, outputs="values").relative_error < 0.02
