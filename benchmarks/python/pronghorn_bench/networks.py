"""`pronghorn bench networks`: networks one image at a time, through two processes and networks between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from pronghorn import _processes
from pronghorn._model import Floats, Plan
from pronghorn._model.verification import relative_error
from pronghorn_bench import party
from pronghorn_bench.cases import Case, Choice
from pronghorn_bench.predicted import ON_ONE_CORE, PLANNED_FOR, SOURCE, Predicted
from pronghorn_bench.records import Report, Sheet, cores, security_bits
from pronghorn_bench.shaper import Network, shaped

SUITE = "networks"
TRUST = "two-party"
TIMEOUT = 600.0
PROCESSOR = "an image, processors of both"
"""Work beside does not count in it; waiting does not either."""


class Image(NamedTuple):
    """The cost of an image at the client, and its outputs."""

    seconds: float
    bytes: float
    """Both ways."""
    outputs: Floats
    processor_seconds: float
    """Of both parties, since they started."""

    @classmethod
    def of(cls, answer: dict[str, Any], server_seconds: float) -> Image:
        """Of a client's answer, and the processor time of the server until now."""
        outputs = np.asarray(answer["outputs"], np.float32)
        both = answer["processor_seconds"] + server_seconds
        return cls(answer["seconds"], answer["sent"] + answer["received"], outputs, both)


@dataclass(frozen=True)
class Images:
    """All images of a connection, in their order. What comes once comes with the first."""

    each: list[Image]

    @property
    def seconds(self) -> float:
        """The median of later images."""
        return median(image.seconds for image in self.each[1:])

    @property
    def least_seconds(self) -> float:
        """The least of later images."""
        return min(image.seconds for image in self.each[1:])

    @property
    def processor_seconds(self) -> float:
        """Of both parties: the mean of later images."""
        return (self.each[-1].processor_seconds - self.each[0].processor_seconds) / (len(self.each) - 1)

    @property
    def megabytes(self) -> float:
        """The mean of later images: some come in rounds for several."""
        return fmean(image.bytes for image in self.each[1:]) / 1e6

    @property
    def once_seconds(self) -> float:
        """Beyond a later image's, of the first."""
        return max(0.0, self.each[0].seconds - self.seconds)

    @property
    def once_megabytes(self) -> float:
        """Beyond a later image's, of the first."""
        return max(0.0, self.each[0].bytes / 1e6 - self.megabytes)

    @property
    def outputs(self) -> Floats:
        """`(images, outputs)`."""
        return np.stack([image.outputs for image in self.each])

    def agreement(self, case: Case) -> float:
        """The share of images with the float network's class."""
        floats = case.model.run_float(case.images[: len(self.each)])
        outputs = self.outputs.reshape(floats.shape)
        return float(np.mean(case.model.classes(outputs) == case.model.classes(floats)))


class Memory(NamedTuple):
    """Peaks, in bytes."""

    client: float
    server: float


class Ours:
    """Pronghorn's client and server on a case, planned for the network between them."""

    def __init__(
        self, case: Case, plan: Plan, wanted: Floats, server: _processes.ServerProcess, client: party.Party
    ) -> None:
        """Use `ours`."""
        self.plan = plan
        self._case, self._wanted, self._server, self._client = case, wanted, server, client
        self._client_memory = 0.0

    def predict(self, number: int) -> Image:
        """An image of the case."""
        self._client.ask(number)
        answer = self._client.answer()
        self._client_memory = answer["peak_memory_bytes"]
        return Image.of(answer, self._server.processor_seconds() or 0.0)

    def error(self, images: Images) -> float:
        """Of the first images, as `relative_error`."""
        wanted = self._case.model.run_float(self._case.images[: len(images.each)])
        return relative_error(images.outputs.reshape(wanted.shape), wanted)

    def wrong(self, images: Images) -> int:
        """Of the first images, how many have outputs that differ from the oracle's in any bit."""
        wanted = self._wanted[: len(images.each)].reshape(len(images.each), -1)
        return int((images.outputs != wanted).any(axis=1).sum())

    def stop(self) -> Memory:
        """Ends the server."""
        return Memory(self._client_memory, self._server.stop()["peak_memory_bytes"])


@contextmanager
def ours(
    case: Case,
    network: Network | None,
    client_cores: Sequence[int],
    server_cores: Sequence[int],
    rounding: str | None = None,
) -> Iterator[Ours]:
    """Both parties, connected through a network."""
    planned_for = PLANNED_FOR[network]
    plan = case.model.plan(TRUST, network=planned_for, rounding=rounding)
    wanted = plan.compiled.run_oracle(case.images, None)[1]
    images = case.samples.with_name("images.npy")
    np.save(images, case.images)
    # Nothing is prepared: an image's cost is all that it takes.
    options = ["--data", str(case.samples), "--network", planned_for, "--prepare", "0", "--idle-timeout", str(TIMEOUT)]
    options += [] if rounding is None else ["--rounding", rounding]
    with ExitStack() as stack:
        with _processes.pinned(server_cores):
            server = stack.enter_context(_processes.served(case.path, TRUST, options))
        settings = {
            "server": stack.enter_context(shaped(server.address, network)),
            "trust": TRUST,
            "plan_hash": plan.hash,
            "images": str(images),
            "timeout": TIMEOUT,
        }
        client = stack.enter_context(party.started("one_by_one.py", settings, client_cores))
        client.answer()
        yield Ours(case, plan, wanted, server, client)


def name_of(network: Network | None) -> str:
    """For people."""
    return "loopback" if network is None else str(network)


def bench_networks(report: Report, quick: bool) -> None:
    """The networks of `cases.BUILT_IN`."""
    run_networks(Choice.default(quick), report)


def run_networks(choice: Choice, report: Report) -> None:
    """Each network through each network between the parties; both parties share all cores."""
    for make in choice.makes():
        with make(choice.most) as case:
            for network in choice.networks:
                _run(case, network, choice, report)


def _run(case: Case, network: Network | None, choice: Choice, report: Report) -> None:
    available = _processes.available_cores()
    with ours(case, network, available, available, choice.rounding) as parties:
        images = Images([parties.predict(number) for number in choice.numbers(case)])
        memory = parties.stop()
    count, is_dithered = len(images.each), parties.plan.compiled.is_dithered
    sheet = Sheet(
        report,
        SUITE,
        ", ".join([case.name, *(["dithered"] if is_dithered else []), name_of(network), cores(len(available))]),
        {
            "model": case.path.name,
            "images": count,
            "planned_for": PLANNED_FOR[network],
            "rounding": "dithered" if is_dithered else "nearest",
            "plan_hash": parties.plan.hash,
        },
        security_bits(parties.plan.details()),
    )
    predicted = Predicted.of(parties.plan)
    seconds = [(predicted.seconds_through(network), ON_ONE_CORE)]
    sheet.add("an image, median", images.seconds, "s", seconds, headline=1)
    sheet.add("an image, least", images.least_seconds, "s", seconds)
    sheet.add(PROCESSOR, images.processor_seconds, "s", [(predicted.seconds, SOURCE)])
    sheet.add("an image", images.megabytes, "MB", [(predicted.bytes / 1e6, SOURCE)], headline=1)
    sheet.add("once", images.once_seconds, "s")
    once = (predicted.once + predicted.setup) / 1e6
    sheet.add("once", images.once_megabytes, "MB", [(once, SOURCE)], headline=1)
    sheet.add("peak memory, client", memory.client / 1e6, "MB", headline=1)
    sheet.add("peak memory, server", memory.server / 1e6, "MB", headline=1)
    if is_dithered:
        # The addends that the oracle lacks stay with the server.
        expected = parties.plan.compiled.fidelity["error"]
        sheet.add("error, of the outputs' spread", parties.error(images), "share", [(expected, SOURCE)], headline=1)
    else:
        sheet.add(f"not the oracle's, of {count}", parties.wrong(images), "images", headline=1)
    sheet.add(f"classes as the float network's, of {count}", images.agreement(case), "share")
