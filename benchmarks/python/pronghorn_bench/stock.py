"""Stock networks of torchvision, timm, scikit-learn and Keras, planned with default options.

    python -m pronghorn_bench.stock --photos DIR [--only NAME ...] [--json FILE]

Builds each network with random weights, takes the statistics of its batch norms on 16 photos, exports it, and plans
it on 32 photos. Then it scores the fixed-point network on other photos. Each network has a process of its own.

Needs torch, torchvision and timm, and for `sklearn` and `keras` networks those packages. A network whose package is
missing is left out, by name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 224
CALIBRATED = 32
SCORED = 8
STATISTICS = 16
SECONDS = 600
"""Most seconds of a network, its export included."""

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Network:
    """A network of the trial."""

    package: str
    """The package that has it."""
    name: str
    """Its name there."""
    exporter: str = "torchscript"
    """`torchscript`, `dynamo`, `skl2onnx` or `keras`."""
    side: int = SIZE
    """Pixels a side."""

    @property
    def title(self) -> str:
        return f"{self.package}:{self.name}:{self.exporter}"


STOCK = [
    Network("torchvision", "resnet18"),
    Network("torchvision", "resnet50"),
    Network("timm", "mobileone_s0"),
    Network("torchvision", "squeezenet1_1"),
    Network("torchvision", "googlenet"),
    Network("torchvision", "densenet121"),
    Network("timm", "regnetx_002"),
    Network("torchvision", "mnasnet1_0"),
    Network("timm", "repvgg_a0"),
    Network("timm", "efficientnet_lite0"),
    Network("torchvision", "vgg11_bn"),
    Network("torchvision", "shufflenet_v2_x1_0"),
    Network("timm", "cspdarknet53"),
    Network("torchvision", "mobilenet_v3_small"),
    Network("timm", "lcnet_050"),
    Network("timm", "ghostnet_100"),
    Network("torchvision", "efficientnet_b0"),
    Network("timm", "mobilevit_xs"),
    Network("torchvision", "convnext_tiny"),
    Network("timm", "vit_tiny_patch16_224"),
]
"""The 20 stock networks of the first trial."""

MORE = [
    Network("torchvision", "mobilenet_v2"),
    Network("torchvision", "mobilenet_v2", "dynamo"),
    Network("torchvision", "resnet18", "dynamo"),
    Network("torchvision", "shufflenet_v2_x0_5", "dynamo"),
    Network("torchvision", "mobilenet_v3_large", "dynamo"),
    Network("torchvision", "alexnet"),
    Network("torchvision", "resnext50_32x4d"),
    Network("torchvision", "regnet_y_400mf"),
    Network("torchvision", "efficientnet_v2_s"),
    Network("timm", "mobilenetv2_050"),
    Network("timm", "mobilenetv3_small_050"),
    Network("timm", "efficientnet_es"),
    Network("timm", "tf_efficientnet_lite1"),
    Network("timm", "fbnetc_100"),
    Network("timm", "hardcorenas_a"),
    Network("timm", "mixnet_s"),
    Network("timm", "mnasnet_small"),
    Network("timm", "spnasnet_100"),
    Network("timm", "semnasnet_100"),
    Network("timm", "dla34"),
    Network("timm", "dpn48b"),
    Network("timm", "hrnet_w18_small"),
    Network("timm", "res2net50_26w_4s"),
    Network("timm", "seresnet18"),
    Network("timm", "skresnet18"),
    Network("timm", "selecsls42b"),
    Network("timm", "vovnet39a"),
    Network("timm", "ese_vovnet19b_dw"),
    Network("timm", "tinynet_e"),
    Network("timm", "resnet10t"),
]
"""Others, of the same families and of the newer exporter."""


def photos(folder: Path, side: int) -> np.ndarray:
    """All photos of a folder in order of name: short side to 8/7 of `side`, cropped, normalised."""
    from PIL import Image

    made = []
    for path in sorted(folder.glob("*.[jJ][pP]*[gG]")):
        image = Image.open(path).convert("RGB")
        scale = side * 8 / 7 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float32) / 255
        made.append(((pixels - MEAN) / DEVIATION).transpose(2, 0, 1))
    return np.ascontiguousarray(made, np.float32)


def torch_model(network: Network) -> Any:
    """A network with random weights from a fixed seed."""
    import torch

    torch.manual_seed(1)
    if network.package == "timm":
        import timm

        return timm.create_model(network.name, pretrained=False)
    import torchvision

    options = {"aux_logits": False, "init_weights": True} if network.name == "googlenet" else {}
    return torchvision.models.get_model(network.name, weights=None, **options)


def export_torch(network: Network, path: Path, images: np.ndarray) -> None:
    """Writes a network whose batch norms know the photos."""
    import torch

    model = torch_model(network)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.eval()
    for norm in norms:
        norm.train()
    with torch.no_grad():
        model(torch.from_numpy(images[:STATISTICS]))
    model.eval()
    example = torch.from_numpy(images[:1])
    torch.onnx.export(model, (example,), str(path), dynamo=network.exporter == "dynamo", external_data=False)


def trial(network: Network, folder: Path) -> dict[str, Any]:
    """Exports a network, plans it, and scores its fixed-point form."""
    import pronghorn

    images = photos(folder, network.side)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        export_torch(network, path, images)
        scored = images[CALIBRATED : CALIBRATED + SCORED]
        began = time.monotonic()
        model = pronghorn.load(path, samples=images[:CALIBRATED])
        plan = model.plan()
        seconds = time.monotonic() - began
        report = model.verify(scored, secure=False)
    cost = json.loads(plan.to_json())["cost"]
    expected = plan.expected_error
    return {
        "outcome": "runs",
        "plan_seconds": seconds,
        "aim": expected.aim,
        "expected": expected.error,
        "labels": expected.alike,
        "found": report.relative_error,
        "cost": cost,
    }


def apart(network: Network, folder: Path) -> dict[str, Any]:
    """`trial` in a process of its own; errors become an outcome."""
    if importlib.util.find_spec(network.package) is None:
        return {"outcome": "left out", "reason": f"{network.package} is not installed"}
    command = [sys.executable, "-m", __spec__.name, "--photos", str(folder), "--one", network.title]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"outcome": "too slow", "reason": f"more than {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"outcome": "failed", "reason": last}


def one(network: Network, folder: Path) -> dict[str, Any]:
    """`trial`, with refusals as an outcome."""
    import pronghorn

    try:
        return trial(network, folder)
    except pronghorn.PronghornError as error:
        return {"outcome": "refused", "reason": " ".join(str(error).split())}


def row(network: Network, found: dict[str, Any]) -> str:
    """A line of the table."""
    name = f"| {network.name} | {network.package}, {network.exporter} |"
    if found["outcome"] != "runs":
        return f"{name} {found['outcome']} | | | | | {found['reason'][:160]} |"
    cost = found["cost"]
    megabytes = (cost["bytes_up"] + cost["bytes_down"]) / 1e6
    note = "" if found["expected"] <= 1.5 * found["aim"] else "above 1.5 times the aim"
    return (
        f"{name} runs | {found['expected']:.3f} | {found['found']:.3f} | {megabytes:,.0f} | "
        f"{found['plan_seconds']:.0f} | {note} |"
    )


def main() -> None:
    """Runs the trial and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of at least 40 photos")
    parser.add_argument("--only", nargs="*", default=[], help="names of networks, instead of all")
    parser.add_argument("--more", action="store_true", help="more networks than the 20 of the first trial")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    every = STOCK + MORE
    if given.one:
        network = next(network for network in every if network.title == given.one)
        print(json.dumps(one(network, given.photos)))
        return
    chosen: Callable[[Network], bool] = lambda network: network.name in given.only
    networks = list(filter(chosen, every)) if given.only else every if given.more else STOCK
    print("| network | exporter | outcome | expected error | found | MB an image | s to plan | |")
    print("|---|---|---|---|---|---|---|---|")
    all_found = []
    for network in networks:
        found = apart(network, given.photos)
        all_found.append({**asdict(network), **found})
        print(row(network, found), flush=True)
        if given.json:
            given.json.write_text(json.dumps(all_found, indent=1))


if __name__ == "__main__":
    main()
