"""`pronghorn bench batch`: kernels."""

from __future__ import annotations

import json
import subprocess
import sys

from pronghorn import _processes
from pronghorn_bench.records import Report, cores, record


def bench_batch(report: Report, quick: bool) -> None:
    """The batch engine's kernels on one core and on all, or quickly on all alone, with their ceiling measured in the
    same run."""
    available = _processes.available_cores()
    for count in [len(available)] if quick else sorted({1, len(available)}):
        # A process each: the number of threads is set once a process.
        with _processes.pinned(available[:count]):
            measure = f"print(json.dumps(_core.bench_batch({count}, {quick})))"
            code = f"import json; from pronghorn_bench import _core; {measure}"
            found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        for figure in json.loads(found.stdout):
            ceiling = figure.get("ceiling")
            reference = None if not ceiling else (float(ceiling), "the machine's ceiling, measured in the same run")
            case = f"{figure['case']}, {cores(count)}"
            parameters, bits = figure["parameters"], figure["security_bits"]
            value, unit = figure["value"], figure["unit"]
            made = record("batch", case, figure["metric"], value, unit, parameters, bits, reference)
            report.add(made, headline=reference is not None)
