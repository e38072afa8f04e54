"""Small networks of torch, as people write them for one task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

STATISTICS = 16
"""Inputs from which batch norms take their statistics."""


def write(model: Any, path: Path, inputs: Floats, dynamo: bool) -> None:
    """Writes a torch network whose batch norms know the first inputs."""
    import torch

    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.eval()
    for norm in norms:
        norm.train()
    with torch.no_grad():
        model(torch.from_numpy(inputs[:STATISTICS]))
    model.eval()
    example = torch.from_numpy(inputs[:1])
    torch.onnx.export(model, (example,), str(path), dynamo=dynamo, external_data=False)


def export(name: str, path: Path, dynamo: bool) -> Floats:
    """Writes a small network with random weights. Returns inputs."""
    import torch

    torch.manual_seed(1)
    shape, build = MODELS[name]
    inputs = np.random.default_rng(1).standard_normal((40, *shape)).astype(np.float32)
    write(build(torch.nn), path, inputs, dynamo)
    return inputs


def _conv(nn: Any, inputs: int, outputs: int, activation: Any) -> Any:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), activation)


def _with(activation: str, *options: Any) -> Callable[[Any], Any]:
    """A small network with an activation by its name in torch."""

    def build(nn: Any) -> Any:
        made = getattr(nn, activation)
        return nn.Sequential(
            _conv(nn, 3, 8, made(*options)),
            nn.AvgPool2d(2),
            _conv(nn, 8, 8, made(*options)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )

    return build


def _series(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv1d(1, 16, 7, stride=2, padding=3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


def _lenet(nn: Any) -> Any:
    features = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(256, 84), nn.ReLU(), nn.Linear(84, 10))


def _mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))


def _autoencoder(nn: Any) -> Any:
    down = [nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
    up = [nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)]
    return nn.Sequential(*down, *up)


def _unet(mode: str) -> Callable[[Any], Any]:
    def build(nn: Any) -> Any:
        import torch

        class UNet(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.down, self.inner = _conv(nn, 3, 8, nn.ReLU()), _conv(nn, 8, 16, nn.ReLU())
                options = {} if mode == "nearest" else {"align_corners": False}
                self.up = nn.Upsample(scale_factor=2, mode=mode, **options)
                self.join, self.last = _conv(nn, 24, 8, nn.ReLU()), nn.Conv2d(8, 2, 1)

            def forward(self, x: Any) -> Any:
                skip = self.down(x)
                deep = self.up(self.inner(torch.nn.functional.max_pool2d(skip, 2)))
                return self.last(self.join(torch.cat([skip, deep], 1)))

        return UNet()

    return build


def _tcn(nn: Any) -> Any:
    class Chomp(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x[:, :, :-4].contiguous()

    class Last(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x[:, :, -1]

    layers = [nn.Conv1d(4, 16, 3, padding=4, dilation=2), Chomp(), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Conv1d(16, 16, 3, padding=4, dilation=2), Chomp(), nn.ReLU(), Last(), nn.Linear(16, 2)
    )


def _recurrent(kind: str) -> Callable[[Any], Any]:
    def build(nn: Any) -> Any:
        class Recurrent(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.last = getattr(nn, kind)(4, 16, batch_first=True), nn.Linear(16, 3)

            def forward(self, x: Any) -> Any:
                return self.last(self.inner(x)[0][:, -1])

        return Recurrent()

    return build


def _residual(nn: Any) -> Any:
    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner = _conv(nn, 3, 16, nn.ReLU()), _conv(nn, 16, 16, nn.Identity())
            self.last = nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            stem = self.stem(x)
            return self.last((stem + self.inner(stem)).relu().mean((2, 3)))

    return Residual()


def _squeezed(nn: Any) -> Any:
    class Squeezed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.pool = _conv(nn, 3, 16, nn.SiLU()), nn.AdaptiveAvgPool2d(1)
            self.gate = nn.Sequential(nn.Conv2d(16, 4, 1), nn.SiLU(), nn.Conv2d(4, 16, 1), nn.Sigmoid())
            self.last = nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            stem = self.stem(x)
            return self.last(self.pool(stem * self.gate(self.pool(stem))).flatten(1))

    return Squeezed()


def _super_resolution(nn: Any) -> Any:
    return nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))


def _encoder(nn: Any) -> Any:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _transformer(nn: Any) -> Any:
    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = _encoder(nn), nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.last(self.inner(x).mean(1))

    return Transformer()


def _vision_transformer(nn: Any) -> Any:
    import torch

    class VisionTransformer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 4, stride=4)
            self.places = nn.Parameter(0.02 * torch.randn(1, 17, 16))
            self.first = nn.Parameter(torch.zeros(1, 1, 16))
            self.inner, self.last = _encoder(nn), nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            patches = self.patches(x).flatten(2).transpose(1, 2)
            steps = torch.cat([self.first.expand(len(x), -1, -1), patches], 1) + self.places
            return self.last(self.inner(steps)[:, 0])

    return VisionTransformer()


def _mixture(nn: Any) -> Any:
    class Mixture(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts, self.last = nn.Linear(20, 4), nn.Linear(20, 4 * 8), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            shares = self.gate(x).softmax(-1)[:, :, None]
            return self.last((self.experts(x).relu().unflatten(1, (4, 8)) * shares).sum(1))

    return Mixture()


IMAGE = (3, 16, 16)


def _binary(nn: Any) -> Any:
    """A network whose activations are signs."""
    import torch

    class Sign(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.sign(x)

    first, second = _conv(nn, 3, 16, Sign()), _conv(nn, 16, 32, Sign())
    return nn.Sequential(first, nn.MaxPool2d(2), second, nn.Flatten(), nn.Linear(32 * 8 * 8, 5))


def _spiking(nn: Any) -> Any:
    """Leaky neurons over eight steps, which fire above a threshold, and then rest."""

    class Spiking(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(20, 32), nn.Linear(32, 5)

        def forward(self, x: Any) -> Any:
            charge, outputs = 0.0, 0.0
            for _ in range(8):
                charge = 0.8 * charge + self.first(x)
                fires = (charge > 1.0).float()
                charge = charge * (1 - fires)
                outputs = outputs + self.last(fires)
            return outputs

    return Spiking()


MODELS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "mlp": ((20,), _mlp),
    "ecg": ((1, 188), _series),
    "lenet": ((1, 28, 28), _lenet),
    "autoencoder": ((1, 16, 16), _autoencoder),
    "unet_nearest": (IMAGE, _unet("nearest")),
    "unet_bilinear": (IMAGE, _unet("bilinear")),
    "tcn": ((4, 24), _tcn),
    "lstm": ((8, 4), _recurrent("LSTM")),
    "gru": ((8, 4), _recurrent("GRU")),
    "residual": (IMAGE, _residual),
    "squeezed": (IMAGE, _squeezed),
    "super_resolution": ((1, 16, 16), _super_resolution),
    "transformer": ((12, 16), _transformer),
    "vision_transformer": (IMAGE, _vision_transformer),
    "mixture": ((20,), _mixture),
    "leaky_relu": (IMAGE, _with("LeakyReLU", 0.1)),
    "prelu": (IMAGE, _with("PReLU")),
    "elu": (IMAGE, _with("ELU")),
    "gelu": (IMAGE, _with("GELU")),
    "silu": (IMAGE, _with("SiLU")),
    "mish": (IMAGE, _with("Mish")),
    "tanh": (IMAGE, _with("Tanh")),
    "softplus": (IMAGE, _with("Softplus")),
    "hardswish": (IMAGE, _with("Hardswish")),
    "hardtanh": (IMAGE, _with("Hardtanh")),
    "relu6": (IMAGE, _with("ReLU6")),
    "hardshrink": (IMAGE, _with("Hardshrink", 0.5)),
    "binary": (IMAGE, _binary),
    "spiking": ((20,), _spiking),
}
"""The shape of an input and the network, by name."""
