"""Sounds like speech, made up: voiced vowels by formants, hisses, and pauses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
"""Formants in Hz."""

WIDTHS = (60, 90, 120)
"""Of the formants, in Hz."""

PAUSES, HISSES = 0.25, 0.4
"""So often a part is a pause, and so often a pause or a hiss."""


def speech(samples: int, rate: int, random: np.random.Generator) -> Floats:
    """So many samples of parts of 80 to 300 ms, with a little noise."""
    made, start = np.zeros(samples), 0
    while start < samples:
        length = min(int(random.uniform(0.08, 0.3) * rate), samples - start)
        kind = random.random()
        if kind < PAUSES:
            part = random.normal(0, random.uniform(0.0005, 0.003), length)
        elif kind < HISSES:
            part = _hiss(length, random)
        else:
            part = _vowel(length, rate, random)
        made[start : start + length] = part
        start += length
    return made + random.normal(0, 0.0005, samples)


def _hiss(length: int, random: np.random.Generator) -> Floats:
    noise = random.normal(0, 0.05, length + 1)
    return (noise[1:] - 0.9 * noise[:-1]) * np.hanning(length)


def _vowel(length: int, rate: int, random: np.random.Generator) -> Floats:
    """Pulses of 90 to 240 Hz through three resonances."""
    pitch = random.uniform(90, 240) * (1 + 0.1 * np.sin(2 * np.pi * random.uniform(2, 5) * np.arange(length) / rate))
    pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0.0)
    spectrum, at = np.fft.rfft(pulses, 2 * length), np.fft.rfftfreq(2 * length, 1 / rate)
    for formant, width in zip(VOWELS[int(random.integers(len(VOWELS)))], WIDTHS, strict=True):
        centre = formant * random.uniform(0.95, 1.05)
        spectrum = spectrum * centre**2 / (centre**2 - at**2 + 1j * at * width)
    sound = np.fft.irfft(spectrum)[:length]
    peak = np.abs(sound).max() + 1e-6
    return np.asarray(sound / peak * random.uniform(0.05, 0.5) * np.hanning(length) ** 0.3)
