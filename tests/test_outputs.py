"""What outputs mean: classes, labels, values; probabilities."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node
from pronghorn._outputs import Predictions, kind_of
from pronghorn.cli import app
from pronghorn.errors import InputError, InputWarning


@pytest.mark.parametrize(
    ("finish", "shape", "kind"),
    [
        ([], (10,), "classes"),
        ([], (10, 1, 1), "classes"),
        ([], (1,), "values"),
        ([], (21, 8, 8), "values"),
        (["softmax"], (2, 5), "classes"),
        (["softmax", "arg_max"], (1,), "classes"),
        (["arg_max"], (1,), "classes"),
        (["sigmoid"], (1,), "classes"),
        (["sigmoid"], (14,), "labels"),
        (["sigmoid"], (1, 8, 8), "labels"),
    ],
)
def test_kinds(finish: list[str], shape: tuple[int, ...], kind: str) -> None:
    assert kind_of(finish, shape) == kind
    assert kind_of(finish, shape, "values") == "values"


def test_zeros_and_ones_make_one_number_a_yes_or_no() -> None:
    assert kind_of([], (1,), truth=np.array([0, 1, 1])) == "classes"
    assert kind_of([], (1,), truth=np.array([0, 1, 2])) == "values"
    assert kind_of([], (1,), truth=np.array([0.5])) == "values"
    with pytest.raises(InputError, match="classes, labels, values"):
        kind_of([], (1,), "probabilities")


def of(outputs: list[list[float]], finish: list[str], kind: str) -> Predictions:
    return Predictions.of(np.float32(outputs), finish, kind)


def test_logits_get_a_softmax() -> None:
    found = of([[1, 3, 2], [1e30, 0, 0]], [], "classes")
    assert found.classes is not None
    assert found.classes.tolist() == [1, 0]
    expected = np.exp([1, 3, 2]) / np.exp([1, 3, 2]).sum()
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, [expected, [1, 0, 0]], rtol=1e-6)
    order, shares = found.top(2)
    assert order.tolist() == [[1, 2], [0, 1]]
    np.testing.assert_allclose(shares[0], expected[[1, 2]], rtol=1e-6)
    # More than there are is all of them.
    assert found.top(9)[0].shape == (2, 3)
    with pytest.raises(InputError, match="count is 0"):
        found.top(0)


def test_a_softmax_is_taken_as_it_is() -> None:
    found = of([[0.2, 0.7, 0.1]], ["softmax"], "classes")
    assert found.probabilities is not None
    np.testing.assert_array_equal(found.probabilities, found.outputs)


def test_yes_or_no() -> None:
    for finish, outputs in ((["sigmoid"], [[0.2], [0.7]]), ([], [[-1.3862944], [0.8472979]])):
        found = of(outputs, finish, "classes")
        assert found.classes is not None
        assert found.probabilities is not None
        assert found.classes.tolist() == [0, 1]
        np.testing.assert_allclose(found.probabilities, [[0.8, 0.2], [0.3, 0.7]], rtol=1e-5)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_scores_that_may_be_probabilities_are_told(kind: str) -> None:
    shares = np.linspace(0, 1, 10)[:, None].tolist()
    with pytest.warns(InputWarning, match="from 0 to 1"):
        of(shares, [], kind)
    for outputs, finish in (
        (shares, ["probabilities"]),
        (shares, ["sigmoid"]),
        ([[-1.0], *shares], []),
        (shares[:3], []),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            of(outputs, finish, kind)


def test_an_argmax_has_no_probabilities() -> None:
    found = of([[7], [3]], ["softmax", "arg_max"], "classes")
    assert found.classes is not None
    assert found.classes.tolist() == [7, 3]
    assert found.probabilities is None
    with pytest.raises(InputError, match="no probabilities"):
        found.top(1)


def test_labels_and_values() -> None:
    found = of([[0.9, 0.8, 0.1]], ["sigmoid"], "labels")
    assert found.classes is None
    assert found.top(2)[0].tolist() == [[0, 1]]
    logits = of([[100, 0, -100]], [], "labels").probabilities
    assert logits is not None
    np.testing.assert_allclose(logits, [[1, 0.5, 0]], atol=1e-6)
    values = of([[3.25]], [], "values")
    assert (values.classes, values.probabilities) == (None, None)


def test_labels_of_shares() -> None:
    """A classifier's probabilities get no Sigmoid."""
    shares = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    found = Predictions.of(shares, ["softmax"], "labels")
    np.testing.assert_array_equal(found.probabilities, shares)
    assert Predictions.of(shares, ["log_softmax_along"], "labels").probabilities is not shares


def test_guessed_classes_are_said(tmp_path: Path) -> None:
    """A regression of several results looks like a classifier."""
    rows, says = floats(40, 3), "taken for scores of classes; for a regression say --outputs values"
    proto = model([node("MatMul", "x w", "y")], ("N", 3), {"w": floats(3, 4)})
    guessed = pronghorn.load(proto, samples=rows)
    ends = pronghorn.load(
        model([node("MatMul", "x w", "h"), node("Softmax", "h", "y")], ("N", 3), {"w": floats(3, 4)}), samples=rows
    )
    assert says in str(guessed.verify(rows, secure=False))
    labels = np.arange(40) % 4
    others = [guessed.verify(rows, outputs=kind, secure=False) for kind in ("values", "classes", "labels")]
    for other in (*others, guessed.verify(rows, labels, secure=False), ends.verify(rows, secure=False)):
        assert not other.is_guess
        assert says not in str(other)
    file, data, labelled = (tmp_path / name for name in ("m.onnx", "x.npy", "l.npz"))
    file.write_bytes(proto.SerializeToString())
    np.save(data, rows)
    np.savez(labelled, x=rows, y=labels)
    for path, more, is_said in ((data, [], True), (data, ["--outputs", "values"], False), (labelled, [], False)):
        found = CliRunner().invoke(app, ["verify", str(file), "--data", str(path), "--no-secure", *more])
        assert found.exit_code == 0, found.output
        assert (says in found.stdout) == is_said


def test_probabilities_stay_as_they_are() -> None:
    """Those of an ensemble, whose networks each end in a Softmax."""
    shares = np.array([[0.98, 0.01, 0.03], [-0.01, 0.5, 0.49]], np.float32)
    found = Predictions.of(shares, [], "classes").probabilities
    assert found is not None
    np.testing.assert_array_equal(found, shares)
    # Scores are none.
    for scores in (shares + 1, 2 * shares, shares[1:, :2]):
        found = Predictions.of(scores, [], "classes").probabilities
        assert found is not None
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
        assert np.abs(found - scores).max() > 0.05
    # Each row is read by itself.
    both = Predictions.of(np.concatenate([shares, 9 * shares]), [], "classes").probabilities
    assert both is not None
    np.testing.assert_array_equal(both[:2], shares)
    np.testing.assert_allclose(both.sum(axis=1), 1, atol=0.05)
