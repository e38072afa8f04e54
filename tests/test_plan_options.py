"""The options of a plan: one object, checked where it is made."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import numpy as np
import pytest

import pronghorn
from conftest import EXAMPLE
from pronghorn._model import PlanOptions, load_with
from pronghorn.errors import InputError, TrustLevelRequired

MODEL = EXAMPLE / "cryptonets_square.onnx"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_range": (1, 0)}, "input_range is 1 to 0"),
        ({"input_range": (0, float("nan"))}, "input_range is 0 to nan"),
        ({"input_range": 5}, "input_range is 5"),
        ({"memory": 0}, "memory is 0"),
        ({"weight_bits": 17}, "weight_bits is 17"),
        ({"input_bits": True}, "input_bits is True"),
        ({"error": 2.5}, "error is 2.5"),
        ({"error": float("nan")}, "error is nan"),
        ({"without": "lazy-rescaling"}, "without is 'lazy-rescaling'"),
        ({"engine": "steam"}, "engine is 'steam'"),
        ({"engine": ["slot"]}, "engine is"),
        ({"objective": 3}, "objective is 3"),
        ({"trust": "encrypted", "engine": "slot"}, "--engine"),
        ({"trust": "encrypted", "objective": "traffic"}, "--objective"),
        ({"trust": "client-aided", "engine": "slot"}, "slots are in use at trust level two-party only"),
        ({"trust": "two-party", "without": ["lazy-rescaling"]}, "--without"),
        ({"trust": "encrypted", "input_bits": 8}, "--input-bits"),
        ({"trust": "encrypted", "flood_bits": 39}, "flood_bits is 39"),
        ({"flood_bits": 129}, "flood_bits is 129"),
        ({"key_checks": 8}, "--key-checks"),
        ({"trust": "client-aided", "flood_bits": 50}, "--flood-bits"),
        ({"trust": "client-aided", "key_checks": 8}, "--key-checks"),
    ],
)
def test_errors_name_the_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PlanOptions(**options)
    with pytest.raises(InputError, match=words):
        dataclasses.replace(PlanOptions(), **options)


def test_plans_print_the_promise_of_floods() -> None:
    model = pronghorn.load(MODEL)
    assert "distance of 2^-40 over 1024 batches of a key" in str(model.plan("encrypted"))
    more = model.plan("encrypted", flood_bits=50)
    assert "distance of 2^-50 over 1024 batches of a key" in str(more)
    assert json.loads(more.to_json())["flood"] == {"bits": 50, "count": 1024}
    assert "floods" not in str(model.plan("client-aided"))


def test_trust_levels_are_checked_first() -> None:
    with pytest.raises(TrustLevelRequired):
        PlanOptions(trust="nonsense", engine="steam")


def test_options_have_one_form_and_stay() -> None:
    options = PlanOptions(trust="encrypted", without=["lazy-relinearisation", "lazy-rescaling", "lazy-rescaling"])
    assert options.without == ("lazy-rescaling", "lazy-relinearisation")
    assert options == PlanOptions(trust="encrypted", without={"lazy-rescaling", "lazy-relinearisation"})
    assert len({options, options.changed(samples=np.zeros((1, 2), np.float32))}) == 1
    assert options.changed(trust=None, memory=None) == options
    assert options.changed(without=()).without == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.memory = 1  # type: ignore[misc]


def test_a_model_is_planned_with_its_options_where_calls_name_no_others() -> None:
    options = PlanOptions(trust="encrypted", without=["lazy-rescaling"], memory=8 << 30)
    own, plain = load_with(MODEL, options), pronghorn.load(MODEL)
    assert "lazy-rescaling off" in str(own.plan())
    assert own.plan().hash == plain.plan("encrypted", without=["lazy-rescaling"], memory=8 << 30).hash
    assert "lazy-rescaling on" in str(own.plan(without=()))
    assert own.plan("client-aided", without=()).trust == "client-aided"
    with pronghorn.serve(own, "127.0.0.1:0") as server:
        assert server.plan_hash == own.plan().hash


def test_each_option_reaches_the_core() -> None:
    """Every field that a caller can set makes another plan, or another error of the core."""
    two_party = {
        "input_range": (-3.0, 3.0),
        "weight_bits": 7,
        "input_bits": 7,
        "error": 0.4,
        "engine": "batch",
        "objective": "throughput",
        "opening": "class",
        "name": "triage",
    }
    usual = load_with(MODEL, PlanOptions()).plan().hash
    for name, value in two_party.items():
        assert load_with(MODEL, PlanOptions(**{name: value})).plan().hash != usual, name
    with pytest.raises(pronghorn.PlanError):
        load_with(MODEL, PlanOptions(memory=1)).plan()
    samples = np.full((4, 1, 28, 28), 0.5, np.float32)
    assert load_with(MODEL, PlanOptions(samples=samples)).plan().hash != usual


def test_public_calls_keep_their_keywords() -> None:
    calls = {pronghorn.Model.plan, pronghorn.Model.verify, pronghorn.serve}
    for call in calls:
        assert {"trust", "objective", "memory", "without", "engine"} <= set(inspect.signature(call).parameters)
    assert {"samples", "input_range", "weight_bits", "input_bits", "error", "opening", "name"} <= set(
        inspect.signature(pronghorn.load).parameters
    )
