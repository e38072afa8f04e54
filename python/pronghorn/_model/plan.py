"""Plans."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from pronghorn import _machine, _native
from pronghorn._categories import Categories
from pronghorn._model import html
from pronghorn._model.core import Shaped
from pronghorn._model.expected import ExpectedError
from pronghorn._model.report import Report
from pronghorn.errors import InputError


class Plan(Shaped):
    """The steps of a secure run, their cost, and what each party learns. Printable, and hashed."""

    def __init__(self, compiled: _native.Compiled) -> None:
        """Wraps a compiled plan; use `Model.plan`."""
        self._compiled = compiled

    def __str__(self) -> str:
        """The plan as a table of at most 120 columns: each step with protocol, ring and bytes, then
        bytes, rounds and predicted seconds."""
        return self._text(details=False)

    def details(self) -> str:
        """The table, and ranges, share forms and all parameters of each step."""
        return self._text(details=True)

    def _text(self, details: bool) -> str:
        measured = _machine.kept()
        text = self._compiled.plan_text(details, _machine.speed_of(measured)).rstrip()
        return f"{text}\n{measured or _machine.NOMINAL}\n{self.expected_error.details()}"

    def __repr__(self) -> str:
        """Trust level and hash."""
        return f"<Plan {self.trust} {self.hash[:16]}>"

    @property
    def trust(self) -> str:
        """The trust level."""
        return self._compiled.trust

    @property
    def hash(self) -> str:
        """BLAKE3 of the plan in hexadecimal, 64 digits; client and server compare it."""
        return self._compiled.plan_hash

    @property
    def expected_error(self) -> ExpectedError:
        """The difference to the float model, measured on samples while planning."""
        return ExpectedError.of(self._compiled)

    @property
    def prediction(self) -> str:
        """A line for people: the seconds of an image on one core, and whose core that is."""
        measured = _machine.kept()
        seconds, up, down = self._compiled.predicted(1, _machine.speed_of(measured))
        return (
            f"one image takes {seconds:.3g} s of one core by prediction, both parties together, and "
            f"{(up + down) / 1e6:.3g} MB; {measured or _machine.NOMINAL}"
        )

    @property
    def compiled(self) -> _native.Compiled:
        """The core's form of it, for `serve`."""
        return self._compiled

    @property
    def _core(self) -> _native.Compiled:
        return self._compiled

    @property
    def categories(self) -> Categories:
        """The values of a row that are categories."""
        return Categories.of_plan(json.loads(self._compiled.plan_json()))

    def to_json(self) -> str:
        """The plan as JSON: all that the table says, and more.

        Beside the plan's fields are `plan_hash`, `learns` (the knowledge of each party), `names` (of
        the model's file and of the node of each step, which clients do not get) and `cost` (bytes,
        rounds, seconds and memory, of each step too). Seconds are those of `speed`, the
        measurement of this machine that is kept, or of the nominal CPU where it is null.
        """
        return json.dumps({**json.loads(self._compiled.plan_json()), **self.summary()}, indent=2)

    def to_html(self, report: Report | None = None) -> str:
        """The plan as one HTML page: time and bytes of each step as bars, totals, memory, expected
        error, and who learns what.

        Args:
            report: a verification of this plan. Its measured seconds stand beside the predicted ones.

        Raises:
            InputError: the report is of another plan.
        """
        if report is not None and report.plan_hash != self.hash:
            raise InputError(f"the report is of plan {report.plan_hash}, not of this one, {self.hash}")
        summary, whose = self.summary(), str(_machine.kept() or _machine.NOMINAL)
        title = f"Plan of {summary['names']['model']}, trust level {self.trust}"
        return html.page(title, summary, self.expected_error.details(), whose, report)

    def summary(self) -> dict[str, Any]:
        """The hash, costs, who learns what, and the measurement behind the seconds, as in `to_json`."""
        measured = _machine.kept()
        found: dict[str, Any] = json.loads(self._compiled.summary_json(_machine.speed_of(measured)))
        return {**found, "speed": None if measured is None else dataclasses.asdict(measured)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan in the form that is hashed and sent; it holds no weights.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_bytes(self._compiled.plan_bytes())
