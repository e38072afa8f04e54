"""nGraph-HE2's Table 6: complex packing, for CryptoNets with ReLU in client-aided mode.

The paper puts one or two values in a slot. Pronghorn's batch engine puts a value in each coefficient: twice as many as
there are slots, which is what complex packing reaches, and no form of it has half of that.
"""

from __future__ import annotations

from pronghorn._bench.cryptonets import TwoProcesses
from pronghorn._bench.records import Reference, Report, cores

TABLE_6: dict[int, list[Reference]] = {
    1: [
        (2.72, "nGraph-HE2, Table 6, a thread, localhost, real packing"),
        (1.44, "nGraph-HE2, Table 6, a thread, localhost, complex packing"),
    ],
    2: [
        (0.24, "nGraph-HE2, Table 6, 24 threads, localhost, complex packing"),
        (0.34, "nGraph-HE2, Table 6, 24 threads, LAN, complex packing"),
    ],
}
"""Milliseconds an image, by cores."""
ACCURACY = (0.9862, "nGraph-HE2, Table 6")


def table_6(report: Report, suite: str, coefficients: TwoProcesses, count: int) -> None:
    """The rows for `coefficients`, a run of the coefficient form on `count` cores."""
    sheet = coefficients.sheet(report, suite, f"table 6, ReLU, client-aided, values in coefficients, {cores(count)}")
    sheet.add("client and server process", 1e3 / coefficients.speed, "ms an image", TABLE_6[count])
    sheet.add("accuracy", coefficients.accuracy, "share", [ACCURACY])
