"""Decision trees and sums of them (forests, gradient boosting), of the domain ai.onnx.ml.

A tree becomes a network of three layers (Nakandala and others, "A Tensor Compiler for Unified Machine Learning
Prediction Serving", OSDI 2020, section 4.1, the strategy by matrices). The first compares features with thresholds: a
row of it has the weight 1 for one feature. The second counts the conditions on the way to each leaf that hold, less one
less than there are: that is 1 for the leaf that is reached, and 0 or less for the others. The third adds up what leaves
bring. Which features are compared with what, and which leaf hangs where, is in weights, and no part of a plan. Its
shapes tell the number of different comparisons and of leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from pronghorn.onnx.advice import CUT, REPAIR
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.operators.exponentials import softmax_within
from pronghorn.onnx.operators.matrices import mix
from pronghorn.onnx.operators.tables import MOST_WEIGHTS, classes_of, features
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

ABOVE, BELOW = 1, -1
"""Whether a comparison is that a feature is above its threshold, or below."""

CONDITIONS: Mapping[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "BRANCH_LEQ": (1, ((ABOVE, -1),)),
    "BRANCH_LT": (0, ((BELOW, 1),)),
    "BRANCH_GTE": (1, ((BELOW, -1),)),
    "BRANCH_GT": (0, ((ABOVE, 1),)),
    "BRANCH_EQ": (1, ((ABOVE, -1), (BELOW, -1))),
    "BRANCH_NEQ": (0, ((ABOVE, 1), (BELOW, 1))),
}
"""Conditions as sums: a constant, and comparisons times 1 or -1."""

MODES = tuple(CONDITIONS)
"""How a feature is compared with a threshold, in the order of the numbers of `TreeEnsemble`."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

MOST_TOGETHER = 1 << 22
"""Weights of the second layer in one piece, at most: more trees are cut into groups with comparisons of their own."""

MOST_LEAVES = 1 << 17
"""Leaves of an ensemble, at most, each counted as often as a way leads to it."""

MOST_CONDITIONS = 1 << 23
"""Conditions on the ways to all nodes, at most."""

MOST_TARGETS = 1 << 12
"""Classes or targets, at most."""

SMALLER = "train fewer or smaller trees"

Comparison = tuple[int, float, int]
"""A feature, a threshold, and `ABOVE` or `BELOW`."""


@dataclass
class Leaf:
    """A leaf: the conditions on the way to it, and what it brings to each target."""

    constant: int
    """The sum of the conditions where no comparison holds, less their number, plus 1."""
    comparisons: list[tuple[Comparison, int]]
    weights: dict[int, float]


@dataclass(frozen=True)
class Ensemble:
    """The nodes of all trees. A place is the number of a node, or `~number` of a leaf."""

    features: list[int]
    thresholds: list[float]
    modes: list[str]
    children: list[tuple[int, int]]
    """The places where the condition holds, and where not."""
    leaves: list[dict[int, float]]
    roots: list[int]

    def trees(self, site: Site) -> Iterator[list[Leaf]]:
        """The leaves of each tree. Where two nodes share one below, it counts twice."""
        unseen = set(range(len(self.modes)))
        leaves = conditions = 0
        for root in self.roots:
            found, pending = list[Leaf](), [(root, 1, list[tuple[Comparison, int]]())]
            while pending:
                place, constant, path = pending.pop()
                if place < 0:
                    leaves += 1
                    found.append(Leaf(constant, path, self.leaves[~place]))
                    continue
                conditions += len(path) + 1
                if leaves > MOST_LEAVES or conditions > MOST_CONDITIONS:
                    problem = f"its trees have more than {MOST_LEAVES} leaves, or {MOST_CONDITIONS} conditions"
                    site.fail(f"{problem} on the ways to all nodes", SMALLER)
                unseen.discard(place)
                feature, threshold = self.features[place], self.thresholds[place]
                alone, terms = CONDITIONS[self.modes[place]]
                for child, sign in zip(self.children[place], (1, -1), strict=True):
                    # Where the condition does not hold, 1 less it does.
                    start = alone if sign > 0 else 1 - alone
                    added = [((feature, threshold, side), sign * times) for side, times in terms]
                    pending.append((child, constant + start - 1, path + added))
            yield found
        if unseen:
            site.fail("a node is below no root", REPAIR)


@operator("ai.onnx.ml.TreeEnsembleRegressor")
def _regressor(lowering: Lowering, site: Site) -> Value:
    value, ensemble = features(lowering, site), _of_lists(site, "target")
    targets = site.integer("n_targets", 1)
    _only(site, "post_transform", site.text("post_transform", "NONE"), ("NONE",))
    aggregate = site.text("aggregate_function", "SUM")
    return _sums(lowering, site, value, (ensemble, targets, aggregate))


@operator("ai.onnx.ml.TreeEnsemble")
def _ensemble(lowering: Lowering, site: Site) -> Value:
    value, ensemble = features(lowering, site), _of_tensors(site)
    if site.integer("post_transform", 0):
        # The standard's 1 is a Softmax, and onnxruntime's a Sigmoid.
        problem = "the standard and onnxruntime disagree on what its post_transform is"
        site.fail(problem, f"export it with 0, {CUT}")
    aggregate = site.integer("aggregate_function", 1)
    if aggregate not in range(len(AGGREGATES)):
        site.fail(f"aggregate_function {aggregate} is unknown", REPAIR)
    return _sums(lowering, site, value, (ensemble, site.integer("n_targets", 1), AGGREGATES[aggregate]))


@operator("ai.onnx.ml.TreeEnsembleClassifier")
def _classifier(lowering: Lowering, site: Site) -> list[Value | None]:
    """Labels, which are not supported, and scores."""
    value, ensemble = features(lowering, site), _of_lists(site, "class")
    classes, transform = classes_of(site), site.text("post_transform", "NONE")
    targets = {target for leaf in ensemble.leaves for target in leaf}
    if classes < 2:
        site.fail("it has one class", "give it two or more, or take a regressor")
    if classes != 2 or targets != {0}:
        if classes == 2 and site.numbers("base_values"):
            site.fail("the standard and onnxruntime disagree on what its base values are", "export it without")
        sums = _sums(lowering, site, value, (ensemble, classes, "SUM"))
        return [None, _transformed(lowering, site, sums, transform)]
    # The standard leaves open what the scores of one column are for two classes. These are onnxruntime's.
    if transform == "LOGISTIC":
        # Two probabilities that add up to 1.
        sums = _sums(lowering, site, value, (ensemble, 1, "SUM"), np.array([[-0.5], [0.5]]))
        return [None, _transformed(lowering, site, sums, "SOFTMAX")]
    _only(site, "post_transform", transform, ("NONE", "SOFTMAX", "LOGISTIC"))
    is_positive = all(weight >= 0 for leaf in ensemble.leaves for weight in leaf.values())
    shift = np.array([1.0 if is_positive else 0.0, 0.0])
    return [None, _sums(lowering, site, value, (ensemble, 1, "SUM"), np.array([[-1.0], [1.0]]), shift)]


def _only(site: Site, name: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        site.fail(f"{name} {found} is not supported", f"use {' or '.join(known)}, {CUT}")


def _transformed(lowering: Lowering, site: Site, sums: Value, transform: str) -> Value:
    _only(site, "post_transform", transform, ("NONE", "SOFTMAX", "LOGISTIC"))
    if transform == "SOFTMAX" and lowering.is_within(site):
        return softmax_within(lowering, site, (sums, None), 1)
    if transform == "LOGISTIC" and lowering.is_within(site):
        return lowering.function(site, sums, "sigmoid")
    finish = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}.get(transform)
    return sums if finish is None else lowering.emit(site, {"kind": finish}, [sums], sums.inner)


# The layers.


@dataclass
class Group:
    """Trees that share comparisons: leaves but one of each tree, and what that one brings is brought by all."""

    comparisons: dict[Comparison, int] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)

    def add(self, leaves: list[Leaf]) -> None:
        """Adds leaves of a tree."""
        for leaf in leaves:
            for comparison, _ in leaf.comparisons:
                self.comparisons.setdefault(comparison, len(self.comparisons))
        self.leaves += leaves

    @property
    def weights(self) -> int:
        """Of the second layer."""
        return len(self.comparisons) * len(self.leaves)


def _sums(
    lowering: Lowering,
    site: Site,
    value: Value,
    ensemble: tuple[Ensemble, int, str],
    matrix: Array | None = None,
    shift: Array | float = 0.0,
) -> Value:
    """What the leaves that are reached bring to each target, times a matrix, plus a shift."""
    (nodes, targets, aggregate) = ensemble
    _only(site, "aggregate_function", aggregate, ("SUM", "AVERAGE"))
    if not 1 <= targets <= MOST_TARGETS:
        site.fail(f"it has {targets} targets or classes", f"use 1 to {MOST_TARGETS}")
    every = list(nodes.trees(site))
    times = 1 / len(every) if aggregate == "AVERAGE" and every else 1.0
    base = site.numbers("base_values") or []
    if len(base) not in (0, targets):
        site.fail(f"{len(base)} base values do not fit {targets} targets", REPAIR)
    total = np.zeros(targets) + (base or 0.0)
    brought = [_differences(site, tree, (targets, times)) for tree in every]
    for always, _ in brought:
        total += always
    leaves = [tree for _, tree in brought if tree]
    bias = total if matrix is None else matrix @ total + shift
    if not leaves:
        return lowering.linear(site, value, np.zeros((len(bias), value.shape[1])), bias)
    groups = _groups(leaves)
    wide, tall = max(len(group.comparisons) for group in groups), max(len(group.leaves) for group in groups)
    sizes = (wide * value.shape[1], wide * tall, tall * targets)
    if len(groups) * max(sizes) > MOST_WEIGHTS:
        site.fail(f"a layer of it would have {len(groups) * max(sizes)} weights, at most {MOST_WEIGHTS} do", SMALLER)
    rows = np.zeros((targets, len(groups) * tall))
    for start, group in zip(range(0, len(groups) * tall, tall), groups, strict=True):
        for at, leaf in enumerate(group.leaves):
            rows[list(leaf.weights), start + at] = list(leaf.weights.values())
    rows = rows if matrix is None else matrix @ rows
    compared, (ways, conditions) = _compared(lowering, site, value, (groups, wide)), _ways(groups, (wide, tall))
    if _are_stumps(leaves):
        # A condition alone is 0 or 1 already.
        return lowering.linear(site, compared, rows @ ways, bias + rows @ conditions)
    weight, addend = (lowering.floats(site, *each) for each in ((ways, "ways"), (conditions, "conditions")))
    if len(groups) == 1:
        counted = lowering.dense(site, compared, weight, addend)
    else:
        column = lowering.reshape(site, compared, (*compared.inner, 1))
        counted = lowering.reshape(site, mix(lowering, site, column, weight, addend), (len(conditions),))
    return lowering.linear(site, lowering.rectified(site, counted), rows, bias)


def _differences(site: Site, tree: list[Leaf], scale: tuple[int, float]) -> tuple[Array, list[Leaf]]:
    """What the leaf at the end of the longest way brings, and of the others what they bring beyond that."""
    targets, times = scale
    if any(not 0 <= target < targets for leaf in tree for target in leaf.weights):
        site.fail(f"a leaf brings something to a target beyond the {targets} there are", REPAIR)
    longest = max(range(len(tree)), key=lambda at: len(tree[at].comparisons))
    always = np.zeros(targets)
    for target, weight in tree[longest].weights.items():
        always[target] = weight * times
    others = list[Leaf]()
    for at, leaf in enumerate(tree):
        if at == longest:
            continue
        keys = leaf.weights.keys() | tree[longest].weights.keys()
        beyond = {key: leaf.weights.get(key, 0.0) * times - float(always[key]) for key in sorted(keys)}
        if any(beyond.values()):
            others.append(Leaf(leaf.constant, leaf.comparisons, beyond))
    return always, others


def _are_stumps(trees: list[list[Leaf]]) -> bool:
    """Whether a comparison alone leads to each leaf."""
    return all(len(leaf.comparisons) == 1 for tree in trees for leaf in tree)


def _groups(trees: list[list[Leaf]]) -> list[Group]:
    """The trees in one group, or in several of nearly as many leaves, which have fewer weights."""
    whole = Group()
    for tree in trees:
        whole.add(tree)
    if whole.weights <= MOST_TOGETHER or _are_stumps(trees):
        return [whole]
    # Groups of a size hold all leaves times the comparisons of one, which are about as many as its leaves.
    size = max(max(map(len, trees)), MOST_TOGETHER // len(whole.leaves), math.isqrt(MOST_TOGETHER) // 4)
    groups = [Group()]
    for tree in trees:
        if groups[-1].leaves and len(groups[-1].leaves) + len(tree) > size:
            groups.append(Group())
        groups[-1].add(tree)
    return groups


def _compared(lowering: Lowering, site: Site, value: Value, groups: tuple[list[Group], int]) -> Value:
    """1 for comparisons that hold, 0 for others: a row, group after group, each of as many places."""
    each, wide = groups
    weight, bias = np.zeros((len(each) * wide, value.shape[1])), -np.ones(len(each) * wide)
    for start, group in zip(range(0, len(bias), wide), each, strict=True):
        for (feature, threshold, side), at in group.comparisons.items():
            if not 0 <= feature < value.shape[1]:
                site.fail(f"it compares feature {feature} of {value.shape[1]}", REPAIR)
            weight[start + at, feature], bias[start + at] = side, -side * threshold
    parts = (lowering.floats(site, *part) for part in ((weight, "features"), (bias, "thresholds")))
    less = lowering.dense(site, value, *parts)
    lowering.compared[less.index] = [(place, number) for group in each for place, number, _ in group.comparisons]
    return lowering.emit(site, {"kind": "step"}, [less], (len(bias),))


def _ways(groups: list[Group], sizes: tuple[int, int]) -> tuple[Array, Array]:
    """The matrix and the summands that count conditions: 1 for a leaf that is reached, 0 or less for others."""
    wide, tall = sizes
    ways, constants = np.zeros((len(groups) * tall, wide)), np.zeros(len(groups) * tall)
    for start, group in zip(range(0, len(constants), tall), groups, strict=True):
        for at, leaf in enumerate(group.leaves):
            constants[start + at] = leaf.constant
            for comparison, times in leaf.comparisons:
                ways[start + at, group.comparisons[comparison]] += times
    return ways, constants


# The two encodings.


def _of_lists(site: Site, kind: str) -> Ensemble:
    """The ensemble of a classifier or regressor of before opset 5, whose nodes are lists of attributes."""
    trees, ids, features, yes, no = (
        site.integers(f"nodes_{name}") or []
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    modes = [mode.decode("utf-8", "replace") for mode in site.attributes.get("nodes_modes", [])]
    thresholds = _numbers(site, "nodes_values")
    if any(len(items) != len(trees) for items in (ids, features, yes, no, modes, thresholds)) or not trees:
        site.fail("its lists of nodes differ in length, or are empty", REPAIR)
    number: dict[tuple[int, int], int] = {key: at for at, key in enumerate(zip(trees, ids, strict=True))}
    if len(number) != len(trees):
        site.fail("two nodes of a tree have one number", REPAIR)
    branches = [at for at, mode in enumerate(modes) if mode != "LEAF"]
    leaves = [at for at, mode in enumerate(modes) if mode == "LEAF"]
    place = {at: new for new, at in enumerate(branches)} | {at: ~new for new, at in enumerate(leaves)}
    weights: list[dict[int, float]] = [{} for _ in leaves]
    owners, nodes, targets = (site.integers(f"{kind}_{name}") or [] for name in ("treeids", "nodeids", "ids"))
    values = _numbers(site, f"{kind}_weights")
    if any(len(items) != len(owners) for items in (nodes, targets, values)):
        site.fail("its lists of leaves differ in length", REPAIR)
    for owner, node, target, weight in zip(owners, nodes, targets, values, strict=True):
        leaf = place.get(number.get((owner, node), -1), 0)
        if leaf >= 0:
            site.fail(f"node {node} of tree {owner} brings something and is no leaf", REPAIR)
        weights[~leaf][target] = weights[~leaf].get(target, 0.0) + weight
    children = list[tuple[int, int]]()
    for at in branches:
        both = [number.get((trees[at], child)) for child in (yes[at], no[at])]
        if any(child is None for child in both):
            site.fail(f"node {ids[at]} of tree {trees[at]} has no node below it", REPAIR)
        children.append((place[both[0] or 0], place[both[1] or 0]))
    below = {child for pair in children for child in pair}
    roots = [at for at in place.values() if at not in below]
    if len(roots) != len(set(trees)):
        site.fail("a tree has no root, or several", REPAIR)
    return _checked(
        site,
        Ensemble(
            [features[at] for at in branches],
            [thresholds[at] for at in branches],
            [modes[at] for at in branches],
            children,
            weights,
            roots,
        ),
    )


def _of_tensors(site: Site) -> Ensemble:
    """The ensemble of a `TreeEnsemble`, whose leaves are apart from nodes."""
    features, yes, yes_leaf, no, no_leaf, roots, targets = (
        site.integers(name) or []
        for name in (
            *("nodes_featureids", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs"),
            *("tree_roots", "leaf_targetids"),
        )
    )
    thresholds, weights = _numbers(site, "nodes_splits"), _numbers(site, "leaf_weights")
    modes = [MODES[int(mode)] if mode in range(len(MODES)) else "" for mode in _numbers(site, "nodes_modes")]
    lists = (thresholds, modes, yes, yes_leaf, no, no_leaf)
    if any(len(items) != len(features) for items in lists) or len(targets) != len(weights):
        site.fail("its lists of nodes or leaves differ in length", REPAIR)
    ends = len(features), len(weights)
    sides = ((yes, yes_leaf), (no, no_leaf))
    all_inside = all(0 <= at < ends[bool(leaf)] for side in sides for at, leaf in zip(*side, strict=True))
    if not all_inside or not all(0 <= root < ends[0] for root in roots) or not roots:
        site.fail("a node names another that is not there", REPAIR)
    places = [[~at if leaf else at for at, leaf in zip(*side, strict=True)] for side in sides]
    leaves = [{target: weight} for target, weight in zip(targets, weights, strict=True)]
    children = list(zip(*places, strict=True))
    return _checked(site, Ensemble(features, thresholds, modes, children, leaves, roots))


def _checked(site: Site, ensemble: Ensemble) -> Ensemble:
    unknown = sorted({mode for mode in ensemble.modes if mode not in CONDITIONS})
    if unknown:
        site.fail(
            f"nodes compare in a way that is not supported: {', '.join(unknown) or 'by membership'}",
            f"train with comparisons of one number ({', '.join(MODES)})",
        )
    return ensemble


def _numbers(site: Site, name: str) -> list[float]:
    """A list of floats, or of a tensor: `NAME_as_tensor` has those of double precision."""
    for attribute in (name, f"{name}_as_tensor"):
        found: Any = site.attributes.get(attribute)
        if isinstance(found, TensorProto):
            array = np.asarray(numpy_helper.to_array(found), np.float64).reshape(-1)
            if not np.isfinite(array).all():
                site.fail(f"{attribute} has numbers that are not finite", REPAIR)
            return [float(number) for number in array]
    return site.numbers(name) or []
