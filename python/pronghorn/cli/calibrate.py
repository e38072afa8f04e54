"""`pronghorn calibrate`."""

from __future__ import annotations

import dataclasses
import json

from pronghorn import _machine
from pronghorn.cli.options import JsonOption
from pronghorn.errors import InputError


def calibrate(as_json: JsonOption = False) -> None:
    """Measure this machine for a second, for the seconds that plans predict.

    The measurement is kept in the user's cache folder ($PRONGHORN_CACHE names another). Plans
    themselves do not depend on it.
    """
    try:
        found = _machine.calibrate()
    except OSError as error:
        raise InputError(
            f"the measurement cannot be kept: {error}\n  what to do: name a folder for it in ${_machine.FOLDER}"
        ) from error
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "path": str(found.machine.path)}, indent=2))
        return
    print(f"{found.machine}: seconds of one core, as multiples of those of the nominal CPU")
    for name, factor in dataclasses.asdict(found.speed).items():
        print(f"  {name:<10}  {factor:.2f}")
    print(f"kept in {found.machine.path}")
