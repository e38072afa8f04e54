"""Private inference for the neural networks people already have.

    model = pronghorn.load("model.onnx", samples=images)
    print(model.plan())
    print(model.verify(images, labels))

    with pronghorn.serve(model, listen="127.0.0.1:7700") as server:
        with pronghorn.connect(server.address) as client:
            logits = client.predict(images)
            found = client.classify(images)  # found.classes, found.probabilities, found.top(3)

Arrays have one image a row: `(images, *model.input_shape)`, converted to float32. The trust level
(`trust=`, `pronghorn.trust_levels()`) says who learns what; where none is named it is `two-party`.
"""

from pronghorn import _interrupt

_interrupt.end_quietly_while_importing()

from pronghorn._admission import Admission, Admitted, admission_key, ask_admission  # noqa: E402
from pronghorn._async import AsyncClient, connect_async  # noqa: E402
from pronghorn._front import Front  # noqa: E402
from pronghorn._model import Model, Plan, Report, Stats, load  # noqa: E402
from pronghorn._monitor import Monitor  # noqa: E402
from pronghorn._network import (  # noqa: E402
    Client,
    Limit,
    Listed,
    LogLine,
    Offer,
    Quantised,
    Server,
    connect,
    limits,
    list_models,
    serve,
)
from pronghorn._outputs import Predictions  # noqa: E402
from pronghorn._placement import Node  # noqa: E402
from pronghorn._tls import ClientTls, ServerTls, make_keys  # noqa: E402
from pronghorn._trust import trust_levels  # noqa: E402
from pronghorn.errors import (  # noqa: E402
    ExportError,
    InputError,
    InputWarning,
    ModelFileError,
    OutputError,
    PlanError,
    PrecisionWarning,
    PrepareWarning,
    PronghornError,
    RangeWarning,
    RoundingWarning,
    RunError,
    StoreWarning,
    TrafficWarning,
    TrustLevelRequired,
    UnsupportedModelError,
)

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "Admitted",
    "AsyncClient",
    "Client",
    "ClientTls",
    "ExportError",
    "Front",
    "InputError",
    "InputWarning",
    "Limit",
    "Listed",
    "LogLine",
    "Model",
    "ModelFileError",
    "Monitor",
    "Node",
    "Offer",
    "OutputError",
    "Plan",
    "PlanError",
    "PrecisionWarning",
    "Predictions",
    "PrepareWarning",
    "PronghornError",
    "Quantised",
    "RangeWarning",
    "Report",
    "RoundingWarning",
    "RunError",
    "Server",
    "ServerTls",
    "Stats",
    "StoreWarning",
    "TrafficWarning",
    "TrustLevelRequired",
    "UnsupportedModelError",
    "admission_key",
    "ask_admission",
    "connect",
    "connect_async",
    "limits",
    "list_models",
    "load",
    "make_keys",
    "serve",
    "trust_levels",
]
