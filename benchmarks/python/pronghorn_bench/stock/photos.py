"""Photos as networks for ImageNet take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 224
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def read(folder: Path, side: int, count: int) -> NDArray[np.float32]:
    """The first photos by name: short side to 8/7 of `side`, cropped, normalised; `(count, 3, side, side)`."""
    made = []
    for path in sorted(folder.glob("*.[jJ][pP]*[gG]"))[:count]:
        image = Image.open(path).convert("RGB")
        scale = side * 8 / 7 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float32) / 255
        made.append(((pixels - MEAN) / DEVIATION).transpose(2, 0, 1))
    return np.ascontiguousarray(made, np.float32)
