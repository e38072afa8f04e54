"""`python -m pronghorn`: the command line."""

from pronghorn.cli import app

app(prog_name="pronghorn")
