"""`pronghorn bench`: figures as records, each beside the published or measured figure it is compared with."""

from __future__ import annotations

from collections.abc import Callable

from pronghorn_bench.activations import bench_activations
from pronghorn_bench.batch import bench_batch
from pronghorn_bench.channels import bench_channels
from pronghorn_bench.cryptonets import bench_cryptonets_relu
from pronghorn_bench.gazelle import bench_gazelle
from pronghorn_bench.mobilenets import bench_mobilenets
from pronghorn_bench.multikey import bench_multikey
from pronghorn_bench.multikey_network import bench_multikey_network
from pronghorn_bench.networks import bench_networks
from pronghorn_bench.ngraph_he2 import bench_ngraph_he2
from pronghorn_bench.ntt import bench_ntt
from pronghorn_bench.peers import bench_peers
from pronghorn_bench.records import Record, Report, Sheet, core_counts, machine, security_bits
from pronghorn_bench.rotation_free import bench_rotation_free
from pronghorn_bench.squares import bench_cryptonets_square
from pronghorn_bench.two_party import bench_two_party
from pronghorn_bench.words import bench_words

SUITES: dict[str, Callable[[Report, bool], None]] = {
    "activations": bench_activations,
    "batch": bench_batch,
    "channels": bench_channels,
    "cryptonets-relu": bench_cryptonets_relu,
    "cryptonets-square": bench_cryptonets_square,
    "gazelle": bench_gazelle,
    "mobilenets": bench_mobilenets,
    "multikey": bench_multikey,
    "multikey-network": bench_multikey_network,
    "networks": bench_networks,
    "ngraph-he2": bench_ngraph_he2,
    "ntt": bench_ntt,
    "peers": bench_peers,
    "rotation-free": bench_rotation_free,
    "two-party": bench_two_party,
    "words": bench_words,
}
"""What each suite does with a report and whether to be quick."""

__all__ = ["SUITES", "Record", "Report", "Sheet", "core_counts", "machine", "security_bits"]
