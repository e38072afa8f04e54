"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from pronghorn._model import Progress as ProgressCallback
from pronghorn._model import speed
from pronghorn.cli.console import errors


class Bar:
    """A progress bar on standard error; none where that is no terminal."""

    def __init__(self, bar: Progress | None) -> None:
        """Use `progress_bar`."""
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)

    def phase(self, name: str) -> None:
        """Begins something else."""
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, description=name, total=None, completed=0)

    @property
    def progress(self) -> ProgressCallback | None:
        """What a long call reports to; None without a terminal."""
        bar, task = self._bar, self._task
        if bar is None or task is None:
            return None
        return lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar that goes at the end of `with`."""
    if not errors.is_terminal:
        yield Bar(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Images(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        yield Bar(bar)


class _Images(ProgressColumn):
    """Images done, images in all, and images a second; the percentage moves within a batch too."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        counted = f"{task.percentage:.0f} %, {int(task.completed):,} of {int(task.total):,} images"
        return Text(counted + (f", {speed(rate)}" if rate > 0 else ""))
