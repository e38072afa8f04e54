"""Decision trees, and sums of them, compared with onnxruntime."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pronghorn
from helpers import model, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx
from pronghorn.onnx.operators import trees

FEATURES = 5

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


class Grown:
    """Random trees, whose thresholds are whole: features that are whole meet them."""

    def __init__(self, seed: int, count: int, depth: int, modes: tuple[str, ...] = MODES[:1], targets: int = 1) -> None:
        self.random, self.modes, self.targets = np.random.default_rng(seed), modes, targets
        self.nodes: list[dict[str, Any]] = []
        self.leaves: list[tuple[int, int, int, float]] = []
        for tree in range(count):
            self.tree, self.next = tree, 0
            self.grow(depth, first=True)

    def grow(self, depth: int, first: bool = False) -> int:
        number, self.next = self.next, self.next + 1
        made: dict[str, Any] = {"treeids": self.tree, "nodeids": number, "featureids": 0, "values": 0.0}
        self.nodes.append(made)
        if depth == 0 or (not first and self.random.random() < 0.2):
            made.update(modes="LEAF", truenodeids=0, falsenodeids=0)
            weights = self.random.normal(size=self.targets)
            self.leaves += [(self.tree, number, target, float(weight)) for target, weight in enumerate(weights)]
            return number
        made["modes"] = str(self.random.choice(self.modes))
        made["featureids"] = int(self.random.integers(FEATURES))
        made["values"] = float(self.random.integers(-3, 4))
        made["truenodeids"] = self.grow(depth - 1)
        made["falsenodeids"] = self.grow(depth - 1)
        return number

    def lists(self, kind: str, scale: float = 1.0, shift: float = 0.0) -> dict[str, Any]:
        """The attributes of a classifier or regressor."""
        names = self.nodes[0]
        found: dict[str, Any] = {f"nodes_{name}": [made[name] for made in self.nodes] for name in names}
        ids = zip(*self.leaves, strict=True)
        kept = zip(("treeids", "nodeids", "ids", "weights"), ids, strict=True)
        named = {f"{kind}_{name}": list(all_) for name, all_ in kept}
        named[f"{kind}_weights"] = [scale * weight + shift for weight in named[f"{kind}_weights"]]
        return {**found, **named}

    def tensors(self) -> dict[str, Any]:
        """The attributes of a `TreeEnsemble`: leaves of one target each."""
        branches = [made for made in self.nodes if made["modes"] != "LEAF"]
        place = {(made["treeids"], made["nodeids"]): at for at, made in enumerate(branches)}
        leaf = {(tree, node): at for at, (tree, node, _, _) in enumerate(self.leaves)}
        children: dict[str, list[int]] = {}
        for side in ("true", "false"):
            keys = [(made["treeids"], made[f"{side}nodeids"]) for made in branches]
            children[f"nodes_{side}nodeids"] = [leaf[key] if key in leaf else place[key] for key in keys]
            children[f"nodes_{side}leafs"] = [int(key in leaf) for key in keys]
        modes = np.array([MODES.index(made["modes"]) for made in branches], np.uint8)
        splits = np.array([made["values"] for made in branches], np.float32)
        return {
            "nodes_modes": numpy_helper.from_array(modes),
            "nodes_splits": numpy_helper.from_array(splits),
            "nodes_featureids": [made["featureids"] for made in branches],
            **children,
            "tree_roots": [place[key] for key in place if key[1] == 0],
            "leaf_targetids": [target for _, _, target, _ in self.leaves],
            "leaf_weights": numpy_helper.from_array(np.array([w for *_, w in self.leaves], np.float32)),
        }


def ensemble(kind: str, outputs: str = "y", version: int = 3, **attributes: Any) -> onnx.ModelProto:
    made = helper.make_node(kind, ["x"], outputs.split(), domain="ai.onnx.ml", **attributes)
    return _of_version(model([made], ("N", FEATURES), {}, outputs=outputs.split()[-1:]), version)


def _of_version(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return proto


def rows(count: int = 200, whole: bool = True) -> np.ndarray:
    random = np.random.default_rng(9)
    made = random.integers(-4, 5, size=(count, FEATURES)) if whole else random.normal(size=(count, FEATURES)) * 3
    return made.astype(np.float32)


def compared(proto: onnx.ModelProto, whole: bool = True) -> ImportedModel:
    imported, inputs = import_onnx(proto), rows(whole=whole)
    wanted = run_onnx(proto, inputs).reshape(len(inputs), -1)
    np.testing.assert_allclose(run_native(imported, inputs).reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)
    return imported


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


@pytest.mark.parametrize("mode", [*MODES, "all"])
@pytest.mark.parametrize("targets", [1, 3])
def test_sums_of_trees_are_three_layers(mode: str, targets: int) -> None:
    grown = Grown(1, 7, 4, MODES if mode == "all" else (mode,), targets)
    proto = ensemble("TreeEnsembleRegressor", n_targets=targets, **grown.lists("target"))
    assert kinds(compared(proto)) == ["input", "dense", "step", "dense", "relu", "dense"]
    compared(proto, whole=False)


def test_averages_and_base_values() -> None:
    lists = Grown(2, 5, 3, targets=2).lists("target")
    for extra in ({"aggregate_function": "AVERAGE"}, {"base_values": [1.5, -2.0]}):
        compared(ensemble("TreeEnsembleRegressor", n_targets=2, **lists, **extra))
    for extra, text in (
        ({"aggregate_function": "MAX"}, "aggregate_function MAX"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
    ):
        with pytest.raises(UnsupportedModelError, match=text):
            import_onnx(ensemble("TreeEnsembleRegressor", n_targets=2, **lists, **extra))


def test_trees_of_one_comparison_need_no_second() -> None:
    proto = ensemble("TreeEnsembleRegressor", n_targets=1, **Grown(3, 9, 1).lists("target"))
    assert kinds(compared(proto)) == ["input", "dense", "step", "dense"]
    # Of a leaf alone nothing is compared.
    proto = ensemble("TreeEnsembleRegressor", n_targets=1, **Grown(3, 4, 0).lists("target"))
    assert kinds(import_onnx(proto)) == ["input", "dense"]


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize(("targets", "shift"), [(1, 0.0), (1, 9.0), (2, 0.0), (3, 0.0)])
def test_classifiers(transform: str, targets: int, shift: float) -> None:
    lists = Grown(4, 6, 3, targets=targets).lists("class", shift=shift)
    labels = list(range(max(targets, 2)))
    proto = ensemble("TreeEnsembleClassifier", "label p", post_transform=transform, classlabels_int64s=labels, **lists)
    compared(proto)
    names = list("abc")[: len(labels)]
    compared(ensemble("TreeEnsembleClassifier", "label p", classlabels_strings=names, **lists))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_two_classes_of_one_column(transform: str) -> None:
    """Of class 0 the other follows, and of class 1 there is nothing else."""
    lists = Grown(4, 6, 3).lists("class")
    options = {"post_transform": transform, "classlabels_int64s": [0, 1]}
    compared(ensemble("TreeEnsembleClassifier", "label p", base_values=[0.5], **options, **lists))
    lists["class_ids"] = [1] * len(lists["class_ids"])
    compared(ensemble("TreeEnsembleClassifier", "label p", **options, **lists))
    for base in ([0.5], [0.5, 1.0]):
        with pytest.raises(UnsupportedModelError, match="disagree"):
            import_onnx(ensemble("TreeEnsembleClassifier", "label p", base_values=base, **options, **lists))


def test_ensembles_of_tensors() -> None:
    grown = Grown(5, 4, 4, MODES)
    compared(ensemble("TreeEnsemble", version=5, n_targets=1, **grown.tensors()))
    compared(ensemble("TreeEnsemble", version=5, n_targets=1, aggregate_function=0, **grown.tensors()))
    for extra, text in (
        ({"post_transform": 1}, "disagree"),
        ({"aggregate_function": 3}, "MAX"),
        ({"aggregate_function": 7}, "unknown"),
        ({"tree_roots": [99]}, "not there"),
        ({"nodes_trueleafs": [1] * 99}, "differ in length"),
    ):
        with pytest.raises(UnsupportedModelError, match=text):
            import_onnx(ensemble("TreeEnsemble", version=5, **{"n_targets": 1, **grown.tensors(), **extra}))
    member = grown.tensors()
    member["nodes_modes"] = numpy_helper.from_array(np.full(len(member["nodes_featureids"]), 6, np.uint8))
    with pytest.raises(UnsupportedModelError, match="by membership"):
        import_onnx(ensemble("TreeEnsemble", version=5, n_targets=1, **member))


def test_thresholds_of_double_precision() -> None:
    lists = Grown(6, 3, 3).lists("target")
    for name in ("nodes_values", "target_weights"):
        lists[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(lists.pop(name), np.float64))
    proto = ensemble("TreeEnsembleRegressor", n_targets=1, **lists)
    same = ensemble("TreeEnsembleRegressor", n_targets=1, **Grown(6, 3, 3).lists("target"))
    both = [run_native(import_onnx(one), rows()) for one in (proto, same)]
    np.testing.assert_allclose(*both, atol=1e-6)


def test_large_ensembles_are_cut_into_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_TOGETHER", 1 << 10)
    proto = ensemble("TreeEnsembleRegressor", n_targets=2, **Grown(7, 40, 5, targets=2).lists("target"))
    imported = compared(proto)
    assert "conv" in kinds(imported)
    conv = next(entry for entry in json.loads(imported.graph_json)["nodes"] if entry["op"]["kind"] == "conv")
    assert conv["op"]["groups"] > 3


def test_ensembles_within_a_network() -> None:
    """Behind a scaler, and before a layer."""
    lists = Grown(8, 5, 3, targets=3).lists("class")
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[1.0] * FEATURES, scale=[0.5] * FEATURES),
        helper.make_node(
            "TreeEnsembleClassifier",
            ["s"],
            ["label", "p"],
            domain="ai.onnx.ml",
            post_transform="SOFTMAX",
            classlabels_int64s=[0, 1, 2],
            **lists,
        ),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    weight = np.array([[1.0, -2.0], [0.5, 1.0], [3.0, 0.0]], np.float32)
    compared(_of_version(model(nodes, ("N", FEATURES), {"w": weight}, outputs=["y"]), 3))


def _broken(**changed: Any) -> onnx.ModelProto:
    lists = Grown(1, 2, 2).lists("target")
    return ensemble("TreeEnsembleRegressor", **{"n_targets": 1, **lists, **changed})


def test_damaged_ensembles_are_refused() -> None:
    lists = Grown(1, 2, 2).lists("target")
    branch = lists["nodes_modes"].index("BRANCH_LEQ")
    itself, far, shared = (list(lists["nodes_truenodeids"]) for _ in range(3))
    itself[branch], far[branch] = lists["nodes_nodeids"][branch], 999
    shared[branch] = lists["nodes_falsenodeids"][branch]
    for changed, text in (
        ({"nodes_modes": lists["nodes_modes"][:-1]}, "differ in length"),
        ({"target_ids": lists["target_ids"][:-1]}, "differ in length"),
        ({"nodes_truenodeids": itself}, "below no root"),
        ({"n_targets": 5000}, "5000 targets"),
        ({"nodes_truenodeids": shared}, "several"),
        ({"nodes_truenodeids": far}, "no node below"),
        ({"nodes_featureids": [99] * len(lists["nodes_featureids"])}, "feature 99"),
        ({"target_ids": [4] * len(lists["target_ids"])}, "beyond"),
        ({"target_nodeids": [0] * len(lists["target_nodeids"])}, "is no leaf"),
        ({"nodes_modes": ["BRANCH_XOR" if m != "LEAF" else m for m in lists["nodes_modes"]]}, "BRANCH_XOR"),
        ({"base_values": [1.0, 2.0]}, "base values"),
    ):
        with pytest.raises(UnsupportedModelError, match=text):
            import_onnx(_broken(**changed))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_predictions_are_those_of_the_trees(trust: str) -> None:
    grown = Grown(11, 8, 4, targets=3)
    proto = ensemble("TreeEnsembleClassifier", "label p", classlabels_int64s=[0, 1, 2], **grown.lists("class"))
    private = pronghorn.load(proto, samples=rows(64))
    result = private.verify(rows(8), trust=trust)
    assert result.disagreements == 0
    assert result.relative_error < 0.01


def test_neutral_operators_behind_probabilities() -> None:
    """As onnxmltools converts LightGBM: the client computes the Softmax all the same."""
    lists = Grown(4, 6, 3).lists("class")
    classified = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "p"],
        domain="ai.onnx.ml",
        post_transform="LOGISTIC",
        classlabels_int64s=[0, 1],
        **lists,
    )
    for kind, constant in (("Mul", 1.0), ("Div", 1.0), ("Add", 0.0), ("Sub", 0.0)):
        nodes = [classified, helper.make_node(kind, ["p", "c"], ["y"])]
        proto = _of_version(model(nodes, ("N", FEATURES), {"c": np.array([constant], np.float32)}, outputs=["y"]), 3)
        assert kinds(compared(proto))[-1] == "softmax"


def test_nodes_may_share_those_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """As onnxmltools writes categories of LightGBM: two comparisons lead to one leaf."""
    proto = ensemble(
        "TreeEnsembleRegressor",
        n_targets=1,
        nodes_treeids=[0] * 4,
        nodes_nodeids=[0, 1, 2, 3],
        nodes_featureids=[0, 0, 0, 0],
        nodes_values=[1.0, 3.0, 0.0, 0.0],
        nodes_modes=["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        nodes_truenodeids=[2, 2, 0, 0],
        nodes_falsenodeids=[1, 3, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[2, 3],
        target_ids=[0, 0],
        target_weights=[5.0, -1.0],
    )
    compared(proto)
    monkeypatch.setattr(trees, "MOST_LEAVES", 2)
    with pytest.raises(UnsupportedModelError, match="more than 2 leaves"):
        import_onnx(ensemble("TreeEnsembleRegressor", n_targets=1, **Grown(1, 3, 4).lists("target")))


def test_large_layers_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_WEIGHTS", 1 << 6)
    with pytest.raises(UnsupportedModelError, match="weights, at most 64 do"):
        import_onnx(ensemble("TreeEnsembleRegressor", n_targets=1, **Grown(1, 9, 4).lists("target")))


@pytest.mark.parametrize("scaled", [False, True])
def test_values_beyond_the_samples_meet_thresholds(scaled: bool) -> None:
    """Samples that have only a part of what thresholds tell apart, and a few values far beyond them."""
    lists = Grown(12, 12, 4).lists("target")
    lists["nodes_values"] = [1000 * value for value in lists["nodes_values"]]
    tree = helper.make_node(
        "TreeEnsembleRegressor", ["s" if scaled else "x"], ["y"], domain="ai.onnx.ml", n_targets=1, **lists
    )
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[7.0], scale=[0.5])
    proto = _of_version(model([scaler, tree] if scaled else [tree], ("N", FEATURES), {}, outputs=["y"]), 3)
    assert set(import_onnx(proto).thresholds) == set(range(FEATURES))
    random = np.random.default_rng(3)
    samples = random.normal(size=(64, FEATURES)).astype(np.float32) * 1500
    samples[:5] *= 1e5
    others = random.normal(size=(300, FEATURES)).astype(np.float32) * 9000
    private = pronghorn.load(proto, samples=samples)
    report = private.verify(others, secure=False)
    assert report.relative_error < 0.03


def test_other_readers_of_features_see_all_of_them() -> None:
    lists = Grown(12, 3, 2).lists("target")
    tree = helper.make_node("TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", n_targets=1, **lists)
    nodes = [tree, helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["t", "m"], ["y"])]
    proto = model(nodes, ("N", FEATURES), {"w": np.ones((FEATURES, 1), np.float32)}, outputs=["y"])
    assert not compared(_of_version(proto, 3)).thresholds
