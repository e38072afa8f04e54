"""An interrupt of the command line while modules are imported, which takes most of its first second."""

from __future__ import annotations

# As few modules as can be: an interrupt before `end_quietly_while_importing` still shows a traceback.
import contextlib
import os
import signal
import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def end_quietly_while_importing() -> None:
    """Ends the command line at SIGINT, without a traceback, until `imported` is called. Not where Pronghorn is a
    library."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Other threads than the first may not set it.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, _end)


def imported() -> None:
    """Makes SIGINT a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command() -> bool:
    """Whether this process is `pronghorn` or `python -m pronghorn`."""
    by_module = sys.orig_argv[1:3] == ["-m", "pronghorn"]
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    return by_module or os.path.splitext(script)[0] == "pronghorn"


def _end(number: int, frame: object) -> None:
    """Leaves at once: an exception within an import may become another error."""
    os._exit(INTERRUPTED)
