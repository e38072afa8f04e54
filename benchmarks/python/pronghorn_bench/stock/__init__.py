"""Networks that nobody prepared, planned with default options.

    python -m pronghorn_bench.stock --photos DIR [--group NAME ...] [--only NAME ...] [--json FILE]

Each network is built with random weights, exported, and planned on samples. Its fixed-point form is scored on other
samples. Batch norms take their statistics from 16 photos or series. Tables are trained.
"""
