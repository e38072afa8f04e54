"""`python -m pronghorn_bench SUITE`: as `pronghorn bench SUITE`."""

import sys

from pronghorn.cli import app

app(["bench", *sys.argv[1:]], prog_name="pronghorn")
