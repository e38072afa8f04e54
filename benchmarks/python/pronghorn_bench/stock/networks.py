"""The networks of the trial, in groups, and how each is exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pronghorn_bench.stock import kerases, packages, photos, small, tables

Floats = NDArray[np.float32]

SEGMENTING = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50")
"""Networks of torchvision that score each pixel."""

CALIBRATED = 32
SCORED = 8


@dataclass(frozen=True)
class Network:
    """A network of the trial."""

    name: str
    """Its name in its package."""
    exporter: str
    """`torchscript` or `dynamo` (torch's two exporters), `skl2onnx`, `keras`, `tf2onnx`, or a file's own."""
    source: str
    """Where it is from: `torchvision`, `timm`, `small`, `sklearn`, `keras` or `packages`."""

    @property
    def title(self) -> str:
        """Names it alone."""
        return f"{self.source}:{self.name}:{self.exporter}"

    @property
    def packages(self) -> tuple[str, ...]:
        """What must be installed."""
        match self.source:
            case "torchvision" | "timm":
                return ("torch", "torchvision", self.source)
            case "small":
                return ("torch",)
            case "packages":
                return (packages.MODELS[self.name].package,)
            case "sklearn":
                return ("sklearn", "skl2onnx")
            case _:
                return ("keras", "tensorflow", "tf2onnx") if self.exporter == "tf2onnx" else ("keras", "torch")

    @property
    def options(self) -> Mapping[str, Any]:
        """How it is loaded."""
        return packages.MODELS[self.name].options if self.source == "packages" else {}

    def export(self, path: Path, folder: Path) -> tuple[Floats, Floats]:
        """Writes the network. Returns samples to plan on, and others to score on."""
        match self.source:
            case "sklearn":
                return tables.export(self.name, path)
            case "keras":
                inputs = kerases.export(self.name, path, folder, self.exporter == "tf2onnx")
            case "packages":
                inputs = packages.export(self.name, path, folder)
            case "small":
                inputs = small.export(self.name, path, self.exporter == "dynamo")
            case _:
                inputs = photos.read(folder, photos.SIDE, CALIBRATED + SCORED)
                _export_stock(self, path, inputs)
        return inputs[:CALIBRATED], inputs[CALIBRATED:][:SCORED]


def _export_stock(network: Network, path: Path, inputs: Floats) -> None:
    """A network of torchvision or timm with random weights from a fixed seed."""
    import torch

    torch.manual_seed(1)
    model: Any
    if network.source == "timm":
        import timm

        model = timm.create_model(network.name, pretrained=False)
    else:
        import torchvision

        options: dict[str, Any] = {}
        if network.name in ("googlenet", "inception_v3"):
            options = {"aux_logits": False, "init_weights": True}
        elif network.name in SEGMENTING:
            options = {"weights_backbone": None}
        model = torchvision.models.get_model(network.name, weights=None, **options)
        if network.name in SEGMENTING:
            # Without the names of its results.
            model.register_forward_hook(lambda _model, _images, results: results["out"])
    small.write(model, path, inputs, network.exporter == "dynamo")


def _networks(exporter: str, source: str, names: str) -> list[Network]:
    return [Network(name, exporter, source) for name in names.split()]


GROUPS = {
    # The 20 stock networks of the first trial.
    "stock": [
        *_networks("torchscript", "torchvision", "resnet18 resnet50 squeezenet1_1 googlenet densenet121 mnasnet1_0"),
        *_networks("torchscript", "torchvision", "vgg11_bn shufflenet_v2_x1_0 mobilenet_v3_small efficientnet_b0"),
        *_networks("torchscript", "timm", "mobileone_s0 regnetx_002 repvgg_a0 efficientnet_lite0 cspdarknet53"),
        *_networks("torchscript", "timm", "lcnet_050 ghostnet_100 mobilevit_xs vit_tiny_patch16_224"),
        *_networks("torchscript", "torchvision", "convnext_tiny"),
    ],
    # Others of the same families, most by the newer exporter.
    "more": [
        *_networks("dynamo", "torchvision", "mobilenet_v2 shufflenet_v2_x0_5 mobilenet_v3_large regnet_y_400mf"),
        *_networks("torchscript", "torchvision", "mobilenet_v2 alexnet"),
        *_networks("dynamo", "timm", "mobilenetv3_small_050 fbnetc_100 mnasnet_small semnasnet_075 tinynet_e"),
        *_networks("torchscript", "timm", "seresnet18 ese_vovnet19b_dw resnet10t hardcorenas_a mixnet_s"),
    ],
    # Larger ones, with attention in windows, and some that score each pixel.
    "large": [
        *_networks("torchscript", "torchvision", "swin_t swin_v2_t maxvit_t efficientnet_v2_s resnext50_32x4d"),
        *_networks("torchscript", "torchvision", "inception_v3"),
        *_networks("torchscript", "torchvision", " ".join(SEGMENTING)),
        *_networks("torchscript", "timm", "poolformer_s12 tnt_s_legacy_patch16_224"),
    ],
    "small": [
        *_networks("torchscript", "small", " ".join(small.MODELS)),
        *_networks("dynamo", "small", "mlp ecg lenet tcn residual transformer"),
    ],
    # Trained networks that packages bring along.
    "packages": [
        *_networks("paddle2onnx", "packages", "ppocr_v4_rec ppocr_v4_det ppocr_v2_cls"),
        *_networks("jax, tf2onnx", "packages", "magika"),
        *_networks("torchscript", "packages", "nudenet ddddocr ddddocr_det silero_vad"),
        *_networks("keras2onnx", "packages", "dnsmos"),
        *_networks("tf2onnx", "packages", "basic_pitch"),
    ],
    "tables": _networks("skl2onnx", "sklearn", " ".join(tables.MODELS)),
    "keras": _networks("keras", "keras", " ".join(kerases.MODELS)),
    "tf2onnx": _networks("tf2onnx", "keras", " ".join((*kerases.MODELS, *kerases.MORE))),
}
