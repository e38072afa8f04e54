"""PyTorch modules: by a stub of torch, and by torch itself where it is installed."""

from __future__ import annotations

import copy
import importlib.machinery
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _torch
from pronghorn._torch import DYNAMO, TORCHSCRIPT
from pronghorn.errors import ExportError, InputError, ModelFileError, UnsupportedModelError

# --- a stub of torch: as much as the export uses ---


class Tensor:
    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)
        self.shape, self.ndim, self.dtype = self.array.shape, self.array.ndim, self.array.dtype.name
        self.device, self.is_meta = "cpu", False

    def is_floating_point(self) -> bool:
        return self.array.dtype.kind == "f"

    def is_complex(self) -> bool:
        return self.array.dtype.kind == "c"

    def to(self, target: str) -> Tensor:
        return self if target == "cpu" else Tensor(self.array.astype(target))

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32))

    def double(self) -> Tensor:
        return self.to("float64")

    def repeat(self, *times: int) -> Tensor:
        return Tensor(np.tile(self.array, times))

    def flip(self, *axes: int) -> Tensor:
        return Tensor(np.flip(self.array, axes))

    def numpy(self) -> np.ndarray:
        return self.array

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.array[place])

    def __neg__(self) -> Tensor:
        return Tensor(-self.array)

    detach = cpu = contiguous = lambda self: self


class Module:
    """A ReLU of a matrix product, to which a second input may be added."""

    def __init__(self, dtype: str = "float32") -> None:
        self.weight = Tensor(floats(4, 3).astype(dtype))
        self.training = True
        self.part: Any = types.SimpleNamespace(training=False)

    def modules(self) -> Iterator[Any]:
        yield from (self, self.part)

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        yield from (("", self), ("part", self.part))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield "weight", self.weight

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        yield from ()

    def parameters(self) -> Iterator[Tensor]:
        yield self.weight

    buffers = named_buffers

    def eval(self) -> None:
        self.training = self.part.training = False

    def forward(self, image: Tensor) -> Any:
        assert not self.training
        return Tensor(np.maximum(image.array @ self.weight.array, 0))

    def __call__(self, *inputs: Tensor) -> Any:
        return self.forward(*inputs)


class BatchNorm:
    training, running_mean = True, None


Export = Callable[..., onnx.ModelProto]


class Exporter:
    """`torch.onnx.export`: keeps its calls, and fails where it should."""

    def __init__(self) -> None:
        self.calls: list[tuple[bool, bool]] = []
        self.fails: Callable[[bool, bool], bool] = lambda dynamo, free: False
        self.proto: Export = relu

    def __call__(
        self,
        module: Module,
        args: tuple[Tensor, ...],
        f: Any = None,
        *,
        input_names: list[str],
        output_names: list[str] | None,
        dynamo: bool,
        dynamic_shapes: Any = None,
        dynamic_axes: Any = None,
        verbose: bool = False,
    ) -> Any:
        assert not module.training
        assert not module.part.training
        free = dynamic_shapes is not None or dynamic_axes is not None
        self.calls.append((dynamo, free))
        if self.fails(dynamo, free):
            raise ValueError("it is hard\nand more") from None
        assert {len(arg.array) for arg in args} == {2 if free else 1}
        proto = self.proto(module, input_names, output_names or ["y"], "N" if free else 1)
        if dynamo:
            return types.SimpleNamespace(model_proto=proto)
        f.write(proto.SerializeToString())
        return None


def relu(module: Module, inputs: list[str], outputs: list[str], batch: Any) -> onnx.ModelProto:
    nodes = [node("MatMul", f"{inputs[0]} w", "p"), node("Relu", "p", outputs[0])]
    return model(nodes, (batch, 4), {"w": module.weight.array}, inputs=inputs, outputs=outputs)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    """The exporter of a stub of torch, with onnxscript."""
    torch: Any = types.ModuleType("torch")
    norms = types.SimpleNamespace(_BatchNorm=BatchNorm)
    torch.nn = types.SimpleNamespace(
        Module=Module,
        parameter=types.SimpleNamespace(is_lazy=lambda tensor: False),
        modules=types.SimpleNamespace(batchnorm=norms),
    )
    torch.Tensor, torch.tensor, torch.float32, torch.bool = Tensor, Tensor, "float32", "bool"
    torch.export = types.SimpleNamespace(Dim=str)
    torch.no_grad = lambda: np.errstate()
    exporter = Exporter()
    torch.onnx = types.SimpleNamespace(export=exporter)
    monkeypatch.setitem(sys.modules, "torch", torch)
    script = types.ModuleType("onnxscript")
    script.__spec__ = importlib.machinery.ModuleSpec("onnxscript", None)
    monkeypatch.setitem(sys.modules, "onnxscript", script)
    return exporter


@pytest.fixture
def without_onnxscript(stub: Exporter, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    return stub


def test_a_module_is_a_model(stub: Exporter) -> None:
    module = Module()
    network = pronghorn.load(module, example=Tensor(floats(5, 4)), name="mine")
    assert (network.inputs, network.outputs) == ({"image": (4,)}, {"output": (3,)})
    assert (network.name, network.exporter) == ("Module", DYNAMO)
    assert repr(network) == f"<Model Module [4] -> [3], exported by {DYNAMO}>"
    assert network.calibrated(floats(9, 4)).exporter == DYNAMO
    assert stub.calls == [(True, True)]
    images = floats(6, 4)
    np.testing.assert_allclose(network.run_float(images), np.maximum(images @ module.weight.array, 0), atol=1e-5)


def test_modes_are_left_as_they_were(stub: Exporter) -> None:
    module = Module()
    pronghorn.load(module, samples=floats(5, 4))
    assert (module.training, module.part.training) == (True, False)
    stub.fails = lambda dynamo, free: True
    with pytest.raises(ExportError):
        pronghorn.load(module, samples=floats(5, 4))
    assert (module.training, module.part.training) == (True, False)


def test_without_onnxscript_the_older_exporter_is_used(without_onnxscript: Exporter) -> None:
    assert pronghorn.load(Module(), samples=floats(5, 4)).exporter == TORCHSCRIPT
    assert without_onnxscript.calls == [(False, True)]
    without_onnxscript.fails = lambda dynamo, free: True
    with pytest.raises(ExportError, match="pip install onnxscript"):
        pronghorn.load(Module(), samples=floats(5, 4))


def test_what_one_export_cannot_another_may(stub: Exporter) -> None:
    stub.fails = lambda dynamo, free: free
    assert pronghorn.load(Module(), example=floats(1, 4)).exporter == DYNAMO
    assert stub.calls == [(True, True), (True, False)]
    stub.calls.clear()
    stub.fails = lambda dynamo, free: dynamo
    assert pronghorn.load(Module(), example=floats(1, 4)).exporter == TORCHSCRIPT
    assert stub.calls == [(True, True), (True, False), (False, True)]
    stub.fails = lambda dynamo, free: True
    with pytest.raises(ExportError) as caught:
        pronghorn.load(Module(), example=floats(1, 4))
    for text in (f"{DYNAMO}: ValueError: it is hard\n", f"{TORCHSCRIPT}: ValueError: it is hard\n", "what to do"):
        assert text in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_refused_model_is_tried_by_the_other_exporter(stub: Exporter) -> None:
    def refused(module: Module, inputs: list[str], outputs: list[str], batch: Any) -> onnx.ModelProto:
        if len(stub.calls) > 1 and batch == "N":
            return relu(module, inputs, outputs, batch)
        return model([node("Det", inputs[0], outputs[0])], (batch, 4), inputs=inputs, outputs=outputs)

    stub.proto = refused
    assert pronghorn.load(Module(), example=floats(1, 4)).exporter == TORCHSCRIPT
    stub.proto = lambda module, inputs, outputs, batch: model(
        [node("Det", inputs[0], outputs[0])], (batch, 4), inputs=inputs, outputs=outputs
    )
    with pytest.raises(UnsupportedModelError, match="Det"):
        pronghorn.load(Module(), example=floats(1, 4))


def test_examples(stub: Exporter) -> None:
    """Of samples, of a shape, or given; by position or name."""
    options: list[dict[str, Any]] = [
        {"samples": floats(3, 4)},
        {"shape": (1, 4)},
        {"shape": {"image": (1, 4)}},
        {"example": {"image": floats(2, 4)}},
        {"example": (floats(2, 4).astype(np.float64),)},
    ]
    for given in options:
        assert pronghorn.load(Module(), **given).input_shape == (4,)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "an example is missing"),
        ({"shape": (1, "four")}, "whole numbers"),
        ({"example": {"picture": floats(2, 4)}}, r"forward\(image\)"),
        ({"example": (floats(2, 4), floats(2, 4))}, "has 2 inputs, and forward takes 1: image"),
        ({"example": ()}, "empty"),
        ({"example": floats(2, 4), "shape": (1, 5)}, "does not fit input"),
    ]
    for given, words in wrong:
        with pytest.raises(InputError, match=words):
            pronghorn.load(Module(), **given)
    with pytest.raises(ExportError, match="batch first"):
        pronghorn.load(Module(), example=floats(4))
    with pytest.raises(InputError, match=r"torch.nn.Module"):
        pronghorn.load("model.onnx", example=floats(1, 4))
    with pytest.raises(InputError, match=r"torch.nn.Module"):
        pronghorn.load(5)  # type: ignore[arg-type]


class Scripted(Module):
    """A module as torch.jit.load makes it: its forward has a schema, and no signature."""

    class Method:
        schema = types.SimpleNamespace(
            arguments=[
                types.SimpleNamespace(name=name, has_default_value=lambda: False) for name in ("self", "picture")
            ]
        )

        @property
        def __signature__(self) -> None:
            raise ValueError("no signature found")

        def __call__(self, image: Tensor) -> Any:
            return Module.forward(self.module, image)

    def __init__(self) -> None:
        super().__init__()
        self.forward = self.Method()
        self.forward.module = self

    def modules(self) -> Iterator[Any]:
        yield from (*super().modules(), types.SimpleNamespace())  # A frozen part has no mode.


def test_loaded_scripts(stub: Exporter) -> None:
    for example in (floats(2, 4), {"picture": floats(2, 4)}):
        assert pronghorn.load(Scripted(), example=example).input_shape == (4,)
    with pytest.raises(InputError, match=r"forward\(picture\)"):
        pronghorn.load(Scripted(), example={"image": floats(2, 4)})


def test_several_inputs_and_outputs(stub: Exporter) -> None:
    class Two(Module):
        def forward(self, image: Tensor, row: Tensor) -> Any:  # type: ignore[override]
            product = np.maximum(image.array @ self.weight.array, 0)
            return {"scores": Tensor(product + row.array), "inner": Tensor(product)}

    def two(module: Module, inputs: list[str], outputs: list[str], batch: Any) -> onnx.ModelProto:
        nodes = [node("MatMul", "image w", "p"), node("Relu", "p", "inner"), node("Add", "inner row", "scores")]
        proto = model(nodes, (batch, 4), {"w": module.weight.array}, inputs=["image"], outputs=outputs)
        row = onnx.helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [batch, 3])
        assert inputs == ["image", "row"]
        proto.graph.input.append(row)
        return proto

    stub.proto = two
    example = {"row": floats(1, 3), "image": floats(1, 4)}
    network = pronghorn.load(Two(), example=example, output=["scores", "inner"])
    assert network.inputs == {"image": (4,), "row": (3,)}
    assert network.outputs == {"scores": (3,), "inner": (3,)}
    assert pronghorn.load(Two(), example=example, output="inner").inputs == {"image": (4,)}
    samples = {"row": floats(20, 3), "image": floats(20, 4)}
    assert pronghorn.load(Two(), samples=samples, output="scores").inputs == network.inputs
    assert pronghorn.load(Two(), samples=samples, output="inner").inputs == {"image": (4,)}
    with pytest.raises(InputError, match=r"the example does not fit forward\(image, row\)"):
        pronghorn.load(Two(), samples={**samples, "more": floats(20, 3)}, output="scores")


def test_modules_that_train_are_refused(stub: Exporter) -> None:
    class Random(Module):
        def forward(self, image: Tensor) -> Any:
            return Tensor(image.array * floats(*image.shape))

    class Failing(Module):
        def forward(self, image: Tensor) -> Any:
            raise RuntimeError("targets are missing")

    statistics = Module()
    statistics.part = BatchNorm()
    cases = [
        (Random(), "each time"),
        (Failing(), "eval mode on the example .*targets are missing"),
        (statistics, "batch norm 'part'"),
        (Module("float16"), r"'weight' is float16"),
    ]
    for module, words in cases:
        with pytest.raises(ExportError, match=words):
            pronghorn.load(module, example=floats(1, 4))
    assert stub.calls == []


def test_a_branch_on_values_is_noticed(stub: Exporter) -> None:
    class Branch(Module):
        def forward(self, image: Tensor) -> Any:
            return Tensor(np.maximum(image.array @ self.weight.array, 0) * (1 if image.array.sum() > 0 else 2))

    branch = Branch()
    branch.weight = Tensor(np.eye(4, 3, dtype=np.float32))
    with pytest.raises(ExportError, match="gives another output"):
        pronghorn.load(branch, example=np.array([[3.0, 1, -1, 1]]))


class Small(Module):
    """A branch with outputs far below 1."""

    def forward(self, image: Tensor) -> Any:
        return Tensor(image.array @ self.weight.array * (1 if image.array.sum() > 0 else -1))


def scores(end: str, factor: float = 1.0) -> Export:
    def proto(module: Module, inputs: list[str], outputs: list[str], batch: Any) -> onnx.ModelProto:
        nodes = [node("MatMul", f"{inputs[0]} w", "p"), node(end, "p", outputs[0])]
        weight = module.weight.array * np.float32(factor)
        return model(nodes, (batch, 4), {"w": weight}, inputs=inputs, outputs=outputs)

    return proto


@pytest.mark.parametrize("size", [1.0, 1e-8, 1e-20])
def test_small_outputs_are_compared(stub: Exporter, size: float) -> None:
    stub.proto = scores("Identity")
    small = Small()
    small.weight = Tensor(np.full((4, 3), size, np.float32))
    with pytest.raises(ExportError, match="gives another output"):
        pronghorn.load(small, example=np.array([[3.0, 1, -1, 1]]))


@pytest.mark.parametrize("size", [1.0, 1e-8])
def test_small_outputs_that_are_random_are_refused(stub: Exporter, size: float) -> None:
    class Random(Module):
        def forward(self, image: Tensor) -> Any:
            self.weight = Tensor(-self.weight.array)
            return Tensor(image.array @ self.weight.array)

    random = Random()
    random.weight = Tensor(np.full((4, 3), size, np.float32))
    with pytest.raises(ExportError, match="each time"):
        pronghorn.load(random, example=np.array([[3.0, 1, -1, 1]]))


class Unlikely(Module):
    """Probabilities near 0, whatever the input."""

    def forward(self, image: Tensor) -> Any:
        return Tensor(np.exp(np.abs(image.array @ self.weight.array) - np.float32(16)))


class Cancelled(Module):
    """Differences of equal numbers: none in double precision, and roundings in single precision."""

    def double(self) -> Cancelled:
        return Cancelled("float64")

    def forward(self, image: Tensor) -> Any:
        return Tensor(np.full((1, 3), 0 if self.weight.dtype == "float64" else 1e-7, image.dtype))


def test_outputs_of_roundings_alone_pass(stub: Exporter) -> None:
    stub.proto = scores("Identity", 1e-20)
    assert pronghorn.load(Cancelled(), example=floats(1, 4)).exporter == DYNAMO
    constants = {"low": np.float32([-16.5])}
    stub.proto = lambda module, inputs, outputs, batch: model(
        [
            node("MatMul", f"{inputs[0]} w", "p"),
            node("Abs", "p", "a"),
            node("Add", "a low", "s"),
            node("Sigmoid", "s", "y"),
            node("Identity", "y", outputs[0]),
        ],
        (batch, 4),
        {"w": module.weight.array, **constants},
        inputs=inputs,
        outputs=outputs,
    )
    assert pronghorn.load(Unlikely(), example=np.zeros((1, 4))).exporter == DYNAMO


class Exponential(Module):
    """Ends in an exponential, which is infinite for large values."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        self.weight = Tensor(np.full((4, 3), -sign, np.float32))

    def forward(self, image: Tensor) -> Any:
        with np.errstate(over="ignore"):
            return Tensor(np.exp(image.array @ self.weight.array + np.float32(60)))


def exponential(module: Module, inputs: list[str], outputs: list[str], batch: Any) -> onnx.ModelProto:
    nodes = [node("MatMul", f"{inputs[0]} w", "p"), node("Add", "p b", "q"), node("Exp", "q", outputs[0])]
    constants = {"w": module.weight.array, "b": np.float32([60])}
    return model(nodes, (batch, 4), constants, inputs=inputs, outputs=outputs)


def test_made_up_inputs_without_finite_outputs_are_left_out(stub: Exporter) -> None:
    stub.proto = exponential
    samples = np.linspace(12, 18, 36, dtype=np.float32).reshape(9, 4)
    assert pronghorn.load(Exponential(), samples=samples).exporter == DYNAMO
    with pytest.raises(ExportError, match=r"module Exponential gives infinite values or NaN .* in its output output"):
        pronghorn.load(Exponential(-1), samples=samples)


def test_exported_models_that_are_not_finite_are_noticed(stub: Exporter) -> None:
    def negated(module: Module, *given: Any) -> onnx.ModelProto:
        return exponential(Exponential(-1), *given)

    stub.proto = negated
    with pytest.raises(ExportError, match="gives another output"):
        pronghorn.load(Exponential(), samples=np.full((5, 4), 15, np.float32))


def test_dumps_of_graphs_are_silenced(without_onnxscript: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    log: list[bool] = []
    core: Any = types.SimpleNamespace(_jit_set_onnx_log_enabled=log.append)
    switch = core._jit_set_onnx_log_enabled
    monkeypatch.setattr(torch, "_C", core, raising=False)

    def fails(dynamo: bool, free: bool) -> bool:
        # As torch does for each export.
        core._jit_set_onnx_log_enabled(True)
        return free

    without_onnxscript.fails = fails
    pronghorn.load(Module(), samples=floats(5, 4))
    assert without_onnxscript.calls == [(False, True), (False, False)]
    assert not any(log)
    assert core._jit_set_onnx_log_enabled == switch


def test_files_of_torch(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"PK")
    with pytest.raises(ModelFileError, match=r"pronghorn.load\(module, example=input\)"):
        pronghorn.load(tmp_path / "weights.pth")


# --- torch itself ---


@pytest.fixture(params=[DYNAMO, TORCHSCRIPT])
def exporter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each exporter of torch."""
    pytest.importorskip("torch")
    if request.param == DYNAMO:
        pytest.importorskip("onnxscript")
    else:
        monkeypatch.setitem(sys.modules, "onnxscript", None)
    return str(request.param)


def test_torch_networks(exporter: str) -> None:
    """Float and secure runs of a network give the module's outputs, for any number of images."""
    import torch

    torch.manual_seed(1)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(36, 5)
    )
    module[1].eval()
    weights = copy.deepcopy(module.state_dict())
    images = floats(20, 1, 8, 8)
    network = pronghorn.load(module, samples=images)
    assert network.exporter == exporter
    assert [part.training for part in module] == [True, False, True, True, True, True, True]
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(network.run_float(images), wanted, rtol=1e-4, atol=1e-5)
    report = network.verify(images[:4])
    assert report.ok
    assert report.relative_error < 0.1


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_torch_recurrent(exporter: str, kind: str) -> None:
    import torch

    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = getattr(torch.nn, kind)(4, 6, batch_first=True), torch.nn.Linear(6, 3)

        def forward(self, series: Any) -> Any:
            return self.last(self.inner(series)[0][:, -1])

    module, series = Recurrent(), floats(5, 7, 4)
    network = pronghorn.load(module, example=torch.from_numpy(series[:1]))
    with torch.no_grad():
        wanted = module(torch.from_numpy(series)).numpy()
    np.testing.assert_allclose(network.run_float(series), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["encoder", "attention", "product"])
def test_torch_attention(exporter: str, kind: str) -> None:
    """Networks that move the batch, and for any number of images give the module's outputs."""
    import torch

    nn = torch.nn

    class Attending(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.last = nn.Linear(8, 3)

        def forward(self, steps: Any) -> Any:
            if kind == "encoder":
                steps = self.encoder(steps)
            elif kind == "attention":
                steps = self.attention(steps, steps, steps, need_weights=False)[0]
            else:
                heads = steps.unflatten(2, (2, 4)).transpose(1, 2)
                steps = nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)
            return self.last(steps.mean(1))

    torch.manual_seed(2)
    module, series = Attending().eval(), floats(24, 5, 8)
    network = pronghorn.load(module, samples=series)
    assert network.exporter == exporter
    with torch.no_grad():
        wanted = module(torch.from_numpy(series)).numpy()
    np.testing.assert_allclose(network.run_float(series), wanted, rtol=1e-3, atol=1e-4)
    report = network.verify(series[:2])
    assert report.ok
    assert report.expected_error < 0.03


def test_torch_several(exporter: str) -> None:
    import torch

    class Two(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(12, 5)

        def forward(self, image: Any, row: Any) -> Any:
            pooled = self.inner(image).relu().mean((2, 3))
            return {"scores": self.last(torch.cat([pooled, row], 1)), "pooled": pooled}

    module, values = Two(), {"image": floats(3, 3, 6, 6), "row": floats(3, 4)}
    network = pronghorn.load(module, example=values, output=["scores", "pooled"])
    assert network.inputs == {"image": (3, 6, 6), "row": (4,)}
    found = network.split(network.run_float(network.join(values)))
    with torch.no_grad():
        wanted = module(*(torch.from_numpy(value) for value in values.values()))
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name].numpy(), rtol=1e-4, atol=1e-5)


def test_torch_refusals(exporter: str) -> None:
    import torch

    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return image * 2 if image.sum() > 0 else image * 3

    class Random(torch.nn.Module):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return torch.nn.functional.dropout(image.relu(), 0.5, True)

    norm = torch.nn.BatchNorm1d(4, track_running_stats=False)
    cases = [
        (Branch(), "gives another output"),
        (Random(), "each time"),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), norm), "batch norm '1'"),
        (torch.nn.Linear(4, 4).half(), "float16"),
        (torch.nn.LazyLinear(4), "no values yet"),
        (torch.nn.Linear(3, 4), "does not run in eval mode"),
    ]
    for module, words in cases:
        with pytest.raises(ExportError, match=words):
            pronghorn.load(module, example=np.ones((1, 4)))


WATCHED = """
import os, sys, tempfile
import numpy, torch, pronghorn

tempfile.gettempdir()  # it writes a file to find out where it may
written = []

def watch(event, given):
    if event != "open":
        return
    path, mode, flags = given
    if flags & (os.O_WRONLY | os.O_RDWR) or any(letter in (mode or "") for letter in "wax+"):
        written.append(path)

sys.addaudithook(watch)
module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
assert pronghorn.load(module, example=torch.rand(1, 20)).input_shape == (20,)
found, written = list(written), []
open(os.devnull, "w").close()
assert written, "nothing is watched"
assert not found, found
"""


def test_torch_weights_are_not_written(exporter: str) -> None:
    """No file is opened for writing from the module to the model."""
    hide = "" if exporter == DYNAMO else "import sys; sys.modules['onnxscript'] = None\n"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", hide + WATCHED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["orthogonal", "spectral_norm", "weight_norm"])
def test_torch_weights_that_are_computed(exporter: str, kind: str) -> None:
    """They are constants of the network, and the module keeps them as they are."""
    import torch
    from torch.nn.utils import parametrizations, parametrize

    torch.manual_seed(1)
    computed = getattr(parametrizations, kind)
    module = torch.nn.Sequential(computed(torch.nn.Linear(6, 6)), torch.nn.ReLU(), computed(torch.nn.Linear(6, 4)))
    before = copy.deepcopy(module.state_dict())
    inputs = floats(5, 6)
    network = pronghorn.load(module, example=inputs)
    assert network.exporter == exporter
    assert module.training
    assert all(parametrize.is_parametrized(module[place], "weight") for place in (0, 2))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    wanted = module.eval()(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(network.run_float(inputs), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_torch_loaded_scripts(tmp_path: Path, frozen: bool) -> None:
    torch = pytest.importorskip("torch")
    script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval())
    torch.jit.save(torch.jit.freeze(script) if frozen else script, tmp_path / "script.pt")
    inputs = floats(5, 4)
    loaded = pronghorn.load(torch.jit.load(tmp_path / "script.pt"), example=inputs)
    np.testing.assert_allclose(
        loaded.run_float(inputs), script(torch.tensor(inputs)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_whole_numbers_are_floats_where_forward_takes_them(monkeypatch: pytest.MonkeyPatch, stub: Exporter) -> None:
    """But where it takes whole numbers alone, as for rows of tables, masks beside them stay whole, too."""
    wanted: dict[str, str] = {}

    def run(module: Any, inputs: dict[str, Tensor]) -> None:
        if any(inputs[name].array.dtype.kind not in kinds for name, kinds in wanted.items()):
            raise ExportError("wrong type", "")

    monkeypatch.setattr(_torch, "_run", run)
    examples = [{"a": Tensor(np.array([[1, 2]])), "b": Tensor(np.array([[True]])), "c": Tensor(np.array([[0.5]]))}]

    def kinds() -> list[str]:
        found = _torch._typed(Module(), examples)
        return ["".join(value.array.dtype.kind for value in first.values()) for (first,) in found]

    assert kinds() == ["fbf", "ibf"]
    wanted = {"a": "i"}
    assert kinds() == ["ibf"]
    wanted = {"a": "i", "b": "f"}
    assert kinds() == ["iff"]
    # Forward says what is wrong.
    wanted = {"a": "O"}
    assert kinds() == ["ibf"]


def test_whole_numbers_stay_whole_where_floats_give_others(monkeypatch: pytest.MonkeyPatch, stub: Exporter) -> None:
    """Attention adds a mask of floats, and leaves out by one of truths, which no sample may need to show."""

    def run(module: Any, inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        return {"output": np.array([1.0 if inputs["mask"].array.dtype.kind == "i" else 5.0])}

    monkeypatch.setattr(_torch, "_run", run)
    x = Tensor(np.array([[1, 2]]))

    def kinds(mask: Any) -> list[str]:
        found = _torch._typed(Module(), [{"x": x, "mask": Tensor(np.array([[mask]]))}])
        return ["".join(value.array.dtype.kind for value in first.values()) for (first,) in found]

    assert kinds(1) == ["ii", "fi"]
    assert kinds(True) == ["fb", "ib"]

    def of_floats(module: Any, inputs: dict[str, Any]) -> Any:
        if inputs["x"].array.dtype.kind != "f":
            raise ExportError("a layer takes floats alone", "give it floats")
        return {"output": np.array([1.0 if inputs["mask"].array.dtype.kind == "b" else 5.0])}

    monkeypatch.setattr(_torch, "_run", of_floats)
    assert kinds(True) == ["fb"]


def test_exports_are_compared_on_several_samples(stub: Exporter) -> None:
    """A branch that the first sample does not take."""
    samples = np.zeros((9, 3), np.int64)
    samples[[2, 5, 8]] = 7
    assert [example["x"].max() for example in _torch._chosen({"x": samples})] == [0, 7, 7, 7]
    assert [example.max() for example in _torch._chosen(samples)] == [0, 7, 7, 7]
    assert _torch._chosen(samples > 0)[0].dtype == bool


@pytest.mark.parametrize("kind", ["numbers", "whole numbers"])
@pytest.mark.parametrize("layer", ["attention", "encoder", "product"])
def test_torch_masks_of_truths(layer: str, kind: str) -> None:
    """Places are left out, and not added to."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.last = torch.nn.Linear(8, 3)

        def forward(self, x: Any, mask: Any) -> Any:
            if layer == "attention":
                return self.attention(x, x, x, key_padding_mask=mask, need_weights=False)
            elif layer == "encoder":
                made = self.encoder(x, src_key_padding_mask=mask)
            else:
                made = torch.nn.functional.scaled_dot_product_attention(3 * x, 3 * x, x, attn_mask=~mask[:, None, :])
            return self.last(made.mean(1))

    module, rng = Network().eval(), np.random.default_rng(0)
    x = rng.standard_normal((40, 5, 8)).astype(np.float32)
    # Layers take them as floats alone.
    x = np.clip(np.rint(x), -1, 1).astype(np.int64) if kind == "whole numbers" else x
    mask = np.array([np.arange(5) > image % 5 for image in range(40)])
    # Those that the types are tried on have no masked places.
    mask[[0, 13, 26, 39]] = False
    loaded = pronghorn.load(module, samples={"x": x, "mask": mask})
    wanted = module(torch.tensor(x).float(), torch.tensor(mask))
    # Attention alone returns its weights, too, of which there are none.
    wanted = (wanted if layer != "attention" else wanted[0]).detach().numpy()
    np.testing.assert_allclose(loaded.run_float({"x": x, "mask": mask}), wanted, rtol=1e-3, atol=1e-4)


def test_torch_masks_beside_words(tmp_path: Path) -> None:
    """Of whole numbers and of truths."""
    torch = pytest.importorskip("torch")

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.score, self.end = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)

        def forward(self, words: Any, mask: Any) -> Any:
            rows = self.table(words)
            scores = self.score(rows).squeeze(-1).masked_fill(mask == 0, -1e9)
            return self.end((torch.softmax(scores, -1).unsqueeze(-1) * rows).sum(1))

    module, rng = Masked().eval(), np.random.default_rng(3)
    words, mask = rng.integers(0, 9, (40, 6)), rng.integers(0, 2, (40, 6))
    mask[:, 0] = 1
    for masks in (mask, mask > 0):
        loaded = pronghorn.load(module, samples={"words": words, "mask": masks})
        wanted = module(torch.tensor(words), torch.tensor(masks)).detach().numpy()
        np.testing.assert_allclose(loaded.run_float({"words": words, "mask": masks}), wanted, rtol=1e-4, atol=1e-5)


def test_torch_branches_on_categories_are_found() -> None:
    torch = pytest.importorskip("torch")

    class Branch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 4)
            self.one, self.other = torch.nn.Linear(8, 3), torch.nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            rows = self.table(x).flatten(1)
            return self.one(rows) if int(x.sum()) > 4 else self.other(rows)

    with pytest.raises(ExportError):
        pronghorn.load(Branch().eval(), samples=np.array([[0, 1], [4, 4], [1, 1], [3, 4]] * 8))


def test_torch_images_of_bytes_beside_a_layer_named_embedding() -> None:
    torch = pytest.importorskip("torch")

    class PatchEmbedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(1, 4, 2, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x / 255).flatten(2).mean(2)

    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4)).astype(np.uint8)
    assert pronghorn.load(PatchEmbedding().eval(), samples=images).input_shape == (1, 4, 4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_torch_bags_of_rows_are_lookups(mode: str) -> None:
    torch = pytest.importorskip("torch")

    class Bag(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(9, 3, mode=mode)
            self.last = torch.nn.Linear(4, 2)

        def forward(self, words: Any, number: Any) -> Any:
            return self.last(torch.cat([self.bag(words), number.unsqueeze(-1)], 1))

    draw = np.random.default_rng(3)
    torch.manual_seed(3)
    module = Bag().eval()
    inputs = {"words": draw.integers(0, 9, (60, 4)), "number": draw.standard_normal(60).astype(np.float32)}
    loaded = pronghorn.load(module, samples=inputs)
    assert type(module.bag).forward is torch.nn.EmbeddingBag.forward
    assert "forward" not in vars(module.bag)
    wanted = module(*map(torch.from_numpy, inputs.values())).detach().numpy()
    np.testing.assert_allclose(loaded.run_float(inputs), wanted, atol=1e-5)


def test_torch_modules_that_count_their_batch() -> None:
    torch = pytest.importorskip("torch")

    class Token(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Parameter(torch.ones(1, 1, 4)), torch.nn.Linear(16, 2)

        def forward(self, x: Any) -> Any:
            return self.last(torch.cat([self.first.expand(len(x), -1, -1), x], 1).flatten(1))

    rows = np.random.default_rng(4).standard_normal((40, 3, 4)).astype(np.float32)
    module = Token().eval()
    loaded = pronghorn.load(module, samples=rows)
    np.testing.assert_allclose(loaded.run_float(rows), module(torch.from_numpy(rows)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("form", ["first", "positions", "batch_first forgotten"])
def test_torch_modules_that_mix_images_are_refused(form: str) -> None:
    """Exported with one image they do not show it."""
    torch = pytest.importorskip("torch")

    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.attention = torch.nn.MultiheadAttention(4, 2)

        def forward(self, x: Any) -> Any:
            if form == "first":
                return self.layer(x - x[0])
            if form == "positions":
                return self.layer(x) + torch.arange(len(x)).float()[:, None, None]
            return self.layer(self.attention(x, x, x)[0])

    rows = np.random.default_rng(5).standard_normal((40, 3, 4)).astype(np.float32)
    with pytest.raises((ExportError, UnsupportedModelError), match=r"mixes images|the batch"):
        pronghorn.load(Mixing().eval(), samples=rows)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_torch_modules_with_weights_that_are_no_numbers_are_refused(weight: float) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    torch.nn.init.constant_(module[0].weight, weight)
    rows = np.random.default_rng(5).standard_normal((40, 4)).astype(np.float32)
    with pytest.raises(UnsupportedModelError, match=r"0\.weight holds"):
        pronghorn.load(module.eval(), samples=rows)


@pytest.mark.parametrize("form", ["words", "words as floats", "zeros", "logarithm", "assertion"])
def test_mixing_is_found_whatever_values_a_module_takes(form: str) -> None:
    """Made-up values that it refuses, and an example of equal numbers, tell nothing: samples do."""
    torch = pytest.importorskip("torch")

    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(12, 4)
            self.layer = torch.nn.Linear(4, 2)
            self.attention = torch.nn.MultiheadAttention(4, 2)

        def forward(self, x: Any) -> Any:
            if form.startswith("words"):
                x = self.words(x.long())
            if form == "logarithm":
                x = x.log()
            if form == "assertion":
                torch._assert(x.min() >= 0, "values of one sign")
            return self.layer(self.attention(x, x, x)[0].mean(1))

    draw = np.random.default_rng(6)
    rows: Any = np.abs(draw.standard_normal((40, 3, 4))).astype(np.float32) + 0.1
    if form.startswith("words"):
        rows = draw.integers(0, 12, (40, 3)).astype(np.float32 if form.endswith("floats") else np.int64)
    example = torch.zeros(1, 3, 4) if form == "zeros" else None
    with pytest.raises(ExportError, match="mixes images"):
        pronghorn.load(Mixing().eval(), samples=rows, example=example)
