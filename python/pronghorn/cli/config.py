"""The file of a server: its options, and a table for each model."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pronghorn.cli.options import DataOption, LabelColumnOption, ModelOptions, Preparation
from pronghorn.cli.spread import spread
from pronghorn.errors import InputError

Group = TypeVar("Group")


@dataclass(frozen=True)
class Entry:
    """A model of a server, as its owner lists it."""

    name: str | None
    """`NAME` or `NAME@VERSION`; None for the plan's own."""
    file: Path
    """The ONNX file."""
    data: Path | None
    """Typical images."""
    labels: str | None
    """The column of a table that is no feature."""
    options: ModelOptions
    """How it is planned."""
    preparation: Preparation
    """How its data is read."""
    clients: tuple[str, ...] | None = None
    """The names of the clients that it is for; None for all."""


@spread
def _entry(
    file: Annotated[Path, typer.Option()],
    *,
    version: Annotated[str | None, typer.Option()] = None,
    clients: Annotated[list[str] | None, typer.Option()] = None,
    data: DataOption = None,
    labels: LabelColumnOption = None,
    options: ModelOptions,
    preparation: Preparation,
) -> None:
    """The keys of a model's table: what is no option of `serve` beside those that are."""


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tables `server` and `models` of a file, with hyphens in keys as underscores.

    Raises:
        InputError: it cannot be read, or has something else.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if others := sorted(set(found) - {"server", "models"}):
        raise InputError(f"{path} has {', '.join(others)}: it takes the table [server] and tables [[models]]")
    server, models = found.get("server", {}), found.get("models", [])
    tables = isinstance(models, list) and all(isinstance(each, dict) for each in models)
    if not (isinstance(server, dict) and tables and models):
        raise InputError(f"{path} has no models: give a table [[models]] with name and file for each")
    return _plain_keys(server), [_plain_keys(each) for each in models]


def _plain_keys(table: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}


def entries(path: Path) -> list[Entry]:
    """The models of a file.

    Raises:
        InputError: as `read`, a table has a wrong key or value, or two have one name and version. The error names model
            and key.
    """
    found = [_read_entry(path, index, table) for index, table in enumerate(read(path)[1], 1)]
    _refuse_twice(path, [str(entry.name) for entry in found])
    return found


def _refuse_twice(path: Path, names: list[str]) -> None:
    """Refuses two models of one name and version, of which clients would get one."""
    full = [name if "@" in name else f"{name}@1" for name in names]
    for index, name in enumerate(full):
        if name in full[:index]:
            raise InputError(f"{path}: {name} is there twice: give versions")


def _read_entry(path: Path, index: int, table: dict[str, Any]) -> Entry:
    name = table.get("name")
    where = f"{path}, model {name or index}"
    if not isinstance(name, str):
        raise InputError(f"{where}: give it a name")
    table = {key: value for key, value in table.items() if key != "name"}
    values = parsed(_entry, table, path.parent, where, ["name"])
    version = values.pop("version")
    clients = values.pop("clients")
    full = name if version is None else f"{name}@{version}"
    return Entry(
        name=full,
        file=values.pop("file"),
        data=values.pop("data"),
        labels=values.pop("labels"),
        clients=None if "clients" not in table else tuple(clients or ()),
        options=_take(ModelOptions, {**values, "name": full}),
        preparation=_take(Preparation, values),
    )


def _take(group: type[Group], values: dict[str, Any]) -> Group:
    fields = dataclasses.fields(group)  # type: ignore[arg-type]
    return group(**{field.name: values[field.name] for field in fields})


def parsed(
    command: Callable[..., None], table: dict[str, Any], folder: Path, where: str, without: Iterable[str] = ()
) -> dict[str, Any]:
    """The parameters of a command, from a table in the place of a command line; arguments are those of `defaults`.

    Raises:
        InputError: as `defaults`, or an option refuses its value.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    values = defaults(command, table, folder, where, without)
    try:
        context = typer.main.get_command(app).make_context("models", [], default_map=values)
    except typer.exceptions.TyperException as error:
        said = error.format_message() if hasattr(error, "format_message") else str(error)
        raise InputError(f"{where}: {said}") from error
    found: dict[str, Any] = context.params
    return found


def defaults(
    command: Callable[..., None], table: dict[str, Any], folder: Path, where: str, without: Iterable[str] = ()
) -> dict[str, Any]:
    """A table as defaults of a command's options but those of `without`. Paths are relative to the file's folder.

    Raises:
        InputError: there is no such option, or it takes something else.
    """
    parameters = inspect.signature(command).parameters
    kinds = {name: _kinds(each.annotation) for name, each in parameters.items() if name not in set(without)}
    if unknown := sorted(set(table) - set(kinds)):
        raise InputError(f"{where}: there is no {unknown[0]}; there are {', '.join(sorted(kinds))}")
    return {key: _placed(value, kinds[key], folder, f"{where}: {key}") for key, value in table.items()}


def _kinds(annotation: Any) -> set[Any]:
    """The types that an option takes, without None."""
    bare = typing.get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
    return set(typing.get_args(bare) if isinstance(bare, types.UnionType) else (bare,)) - {types.NoneType}


def _placed(value: Any, kinds: set[Any], folder: Path, where: str) -> Any:
    """A value as the command line takes it.

    Raises:
        InputError: the command line would read it as something else, such as a list where one value is taken.
    """
    wanted = "a list" if list[str] in kinds else "true or false" if bool in kinds else "one value"
    found = "a list" if isinstance(value, list) else "true or false" if isinstance(value, bool) else "one value"
    if wanted != found or isinstance(value, dict):
        raise InputError(f"{where} is {value!r}: give {wanted}")
    return str(folder / value) if Path in kinds and isinstance(value, str) else value
