"""Tables as inputs: CSV and parquet."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import Frame, floats, model, node
from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images, read_labels
from pronghorn._streams import open_images
from pronghorn._tables import read_table
from pronghorn.cli import app
from pronghorn.cli.inputs import labels_of
from pronghorn.cli.options import TABLE_SAMPLES
from pronghorn.errors import InputError, InputWarning

ROWS = "5.1,3.5,1.4\n4.9,-3,1e-2\n"
VALUES = [[5.1, 3.5, 1.4], [4.9, -3, 0.01]]


def written(folder: Path, text: str, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        f"a,b,c\n{ROWS}",
        f"\ufeffa,b,c\n{ROWS}",
        f'"a","b","c"\r\n\r\n{ROWS.replace(",", " , ")}',
        ROWS.replace(",", ";"),
        f"a\tb\tc\n{ROWS}".replace(",", "\t"),
    ],
)
def test_csv_files(tmp_path: Path, text: str) -> None:
    found = load_images(written(tmp_path, text), (3,), Preprocessing())
    np.testing.assert_allclose(found.images, VALUES, rtol=1e-6)
    assert found.labels is None
    assert not found.were_bytes
    assert found.titles == ["x.csv[0]", "x.csv[1]"]


def test_whole_numbers_need_no_scale(tmp_path: Path) -> None:
    """A column of ages is no picture."""
    found = load_images(written(tmp_path, "40,300\n20,7"), (1, 1, 2), Preprocessing())
    np.testing.assert_array_equal(found.images.reshape(2, 2), [[40, 300], [20, 7]])


def test_columns_of_labels(tmp_path: Path) -> None:
    path = written(tmp_path, "a,Label,c\n1,0,2\n3,1,4\n")
    found = load_images(path, (2,), Preprocessing())
    np.testing.assert_array_equal(found.images, [[1, 2], [3, 4]])
    assert found.labels is not None
    assert (found.labels.dtype, found.labels.tolist()) == (np.int64, [0, 1])
    assert read_labels(path).tolist() == [0, 1]
    assert read_labels(written(tmp_path, "2\n1\n", "l.csv")).tolist() == [2, 1]
    # A model that takes all columns gets all.
    assert load_images(path, (3,), Preprocessing()).labels is None
    found = load_images(path, (2,), Preprocessing(), "c")
    assert found.labels is not None
    assert found.labels.tolist() == [2, 4]
    np.testing.assert_array_equal(found.images, [[1, 0], [3, 1]])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3,x\n", r"row 3, column 'b' of .*x\.csv holds 'x'"),
        ("1,2\n3,\n", r"row 2, column '2' of .* holds ''"),
        ("1,2\n3,nan\n", "holds 'nan'"),
        ("1,2\n3\n", r"line 2 of .* has 1 cells, the first has 2"),
        ("", "is empty"),
        ("1,2,3\n4,5,6\n", "has 3 columns of numbers; the model takes 2"),
        ('"1,2\n', "columns|CSV|cells|holds|header"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_images(written(tmp_path, text), (2,), Preprocessing())


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "bytes.csv").write_bytes(b"1,\xff\xfe\n")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_table(tmp_path / "bytes.csv")
    path = written(tmp_path, "a,kind\n1,cat\n")
    with pytest.raises(InputError, match=r"no column of .* has a, kind"):
        read_table(path, "sort")
    labels = read_table(path, "kind")[1]
    assert labels is not None
    assert labels.dtype.kind == "U"


def test_parquet_files(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"a": [1, 2], "b": [0.5, 1.5], "y": [1, 0]}), path)
    found = load_images(path, (2,), Preprocessing())
    np.testing.assert_array_equal(found.images, [[1, 0.5], [2, 1.5]])
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]
    parquet.write_table(pyarrow.table({"a": [1, None], "b": [0.5, 1.5]}), path)
    with pytest.raises(InputError, match=r"row 2, column 'a' of .* holds None"):
        load_images(path, (2,), Preprocessing())
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read_table(path)


def test_the_command_line_takes_tables(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    rows = np.column_stack([floats(40, 3), np.arange(40) % 2])
    lines = [",".join(f"{value:g}" for value in row) for row in rows]
    path = written(tmp_path, "\n".join(["a,b,c,class", *lines]))
    ask = ["verify", str(tmp_path / "m.onnx"), "--trust", "client-aided", "--data", str(path)]
    found = CliRunner().invoke(app, [*ask, "--labels", "class"])
    assert found.exit_code == 0, found.output
    assert "accura" in found.output
    refused = CliRunner().invoke(app, ask)
    assert refused.exit_code == 2
    assert "4 columns" in refused.output


ROWS = {"age": [40.0, 20, 33, 60], "Weight": [80.0, 60, 71, 90], "height": [1.8, 1.6, 1.7, 1.9]}


def reordered(tmp_path: Path, names: list[str], name: str, header: bool = True) -> Path:
    lines = [",".join(f"{ROWS.get(each, [7] * 4)[row]:g}" for each in names) for row in range(4)]
    return written(tmp_path, "\n".join([",".join(names)] * header + lines), name)


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    wanted = tuple(ROWS)
    own = load_images(reordered(tmp_path, list(ROWS), "own.csv"), (3,), Preprocessing())
    assert own.columns == wanted
    for names in (["height", "age", "Weight"], ["id", "HEIGHT", "weight ", "age"]):
        path = reordered(tmp_path, names, "x.csv")
        text = path.read_text().splitlines()
        plain = [name.strip().lower() for name in names]
        values = {"age": ROWS["age"], "weight": ROWS["Weight"], "height": ROWS["height"]}
        lines = [",".join(f"{values.get(each, [7] * 4)[row]:g}" for each in plain) for row in range(4)]
        path.write_text("\n".join([text[0], *lines]))
        found = load_images(path, (3,), Preprocessing(), columns=wanted)
        np.testing.assert_array_equal(found.images, own.images)
    # Without names the order is the model's.
    path = reordered(tmp_path, list(ROWS), "bare.csv", header=False)
    np.testing.assert_array_equal(load_images(path, (3,), Preprocessing(), columns=wanted).images, own.images)
    # A feature may be called as labels are.
    path = written(tmp_path, "b,y,a\n1,2,3\n", "y.csv")
    found = load_images(path, (2,), Preprocessing(), columns=("y", "b"))
    assert (found.images.tolist(), found.labels) == ([[2, 1]], None)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "b", "c"], "lacks the columns age, Weight, height: it has a, b, c; the model takes age"),
        (["height", "age", "mass"], "lacks the columns Weight: it has height, age, mass"),
        (["height", "Age", "Weight", "AGE"], "has the columns age twice"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, names: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_images(reordered(tmp_path, names, "x.csv"), (3,), Preprocessing(), columns=tuple(ROWS))


FLOWERS = np.random.default_rng(0).uniform(0, 8, (12, 4)).round(1)
COUNTS = np.random.default_rng(1).integers(40, 90, (12, 4))


def numbered(names: list[int], values: np.ndarray, index: bool = False) -> str:
    """A table as pandas writes it, whose columns have numbers for names."""
    rows = [",".join([""] * index + [str(name) for name in names])]
    return "\n".join([*rows, *(",".join([str(at)] * index + [str(v) for v in row]) for at, row in enumerate(values))])


@pytest.mark.parametrize(
    ("names", "values", "says"),
    [
        ([0, 1, 2, 3], FLOWERS, None),
        ([0, 1, 2, 3], FLOWERS[:1], None),
        ([2001, 2002, 2003, 2004], FLOWERS, None),
        ([2001, 2002, 2003, 2004], COUNTS, None),
        ([0, 1, 2, 3], COUNTS, "is taken for names"),
        ([0, 1], FLOWERS[:, :2], "is taken for names"),
        ([0, 1, 2], np.c_[FLOWERS[:, :2].astype(object), COUNTS[:, :1].astype(object)], "is taken for names"),
    ],
)
def test_numbers_that_are_names(tmp_path: Path, names: list[int], values: np.ndarray, says: str | None) -> None:
    path = written(tmp_path, numbered(names, values))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loaded = load_images(path, (len(names),), Preprocessing())
    np.testing.assert_allclose(loaded.images, values.astype(np.float32))
    assert loaded.columns == tuple(map(str, names))
    assert [says in str(each.message) for each in found if says] == ([True] if says else [])
    assert len(open_images(path, (len(names),), Preprocessing(header=True)).read(0, 99)) == len(values)
    whole = load_images(path, (len(names),), Preprocessing(header=False)).images
    assert (whole[0].tolist(), len(whole)) == (names, len(values) + 1)


@pytest.mark.parametrize(
    "text",
    ["5,6,7\n" + "3,9,1\n8,2,4\n" * 5, "1,2,3\n4,5,6", "1.0,2.0\n3.5,1.5", "0.0,1.0,2.0\n3.5,1.5,2.5", "1,2,3", "3,7"],
)
def test_numbers_that_are_values(tmp_path: Path, text: str) -> None:
    rows = [[float(cell) for cell in line.split(",")] for line in text.split()]
    assert load_images(written(tmp_path, text), (len(rows[0]),), Preprocessing()).images.tolist() == rows
    pairs = written(tmp_path, "0,1\n1,0\n1,1\n0,0")
    with pytest.warns(InputWarning, match=r"0, 1, is taken for values\n.*--header"):
        assert len(load_images(pairs, (2,), Preprocessing()).images) == 4


def test_values_that_are_numbers_of_turned_columns_are_no_names(tmp_path: Path) -> None:
    """Samples whose columns are 1 and 0 say no more of a first row of them than others do."""
    path = written(tmp_path, "0,1\n1,1\n0,0\n1,0\n0,1")
    with pytest.warns(InputWarning, match="is taken for values"):
        assert len(read_table(path, wanted=("1", "0")).values) == 5
    # Longer numbers than Python reads.
    nines = ",".join(["9" * 5000] * 3)
    with pytest.raises(InputError):
        load_images(written(tmp_path, f"{nines}\n1,2,3"), (3,), Preprocessing())


@pytest.mark.parametrize("text", ["0,1,2\n3,4,5\n6,7,8", "0,1,2\n2,1,0\n1,1,2", "0,1,2", "2001,2002,2003\n30,29,28"])
def test_numbers_that_may_be_names_or_values_are_refused(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=r"may be names of its columns or values\n.*--header or --no-header"):
        load_images(path, (3,), Preprocessing())
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    plan = ["plan", str(tmp_path / "m.onnx"), "--data", str(path), "--json"]
    told = CliRunner().invoke(app, [*plan, "--no-header"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["columns"] == []
    assert CliRunner().invoke(app, plan).exit_code == 2


def test_numbers_are_found_as_other_names_are(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 4), {"w": floats(4, 2)})
    columns: dict[Any, Any] = dict(enumerate(FLOWERS.T))
    frame, turned = Frame(columns), Frame({at: columns[at] for at in (3, 1, 0, 2)})
    loaded = pronghorn.load(proto, samples=frame)
    assert json.loads(loaded.plan().to_json())["columns"] == ["0", "1", "2", "3"]
    wanted = loaded.run_float(frame)
    np.testing.assert_array_equal(loaded.run_float(FLOWERS), wanted)
    np.testing.assert_array_equal(loaded.run_float(turned), wanted)
    np.testing.assert_array_equal(loaded.run_float(Frame({"id": FLOWERS[:, 0], **columns})), wanted)
    # Numbers are no names where the others have some.
    np.testing.assert_array_equal(loaded.run_float(Frame(dict(zip("abcd", FLOWERS.T, strict=True)))), wanted)
    texts = [numbered([3, 1, 0, 2], FLOWERS[:, [3, 1, 0, 2]]), numbered([0, 1, 2, 3], FLOWERS, index=True)]
    for text in (*texts, numbered([0, 1, 2, 3], FLOWERS).replace("0,1,2,3", "a,b,c,d")):
        found = load_images(written(tmp_path, text), (4,), Preprocessing(), columns=("0", "1", "2", "3"))
        np.testing.assert_array_equal(found.images, FLOWERS.astype(np.float32))


def test_a_name_among_the_labels_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "0\n2\n1\n", "l.csv")
    with pytest.raises(InputError, match=r"3 labels for 2 images\n.*where the first line of .*l\.csv is a name"):
        labels_of(path, None, 2, 2)


def test_names_that_tell_nothing_are_said(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    said = [("a", "a", "b"), ("a", "", "b"), ("a", "b", "c" * 257), ("5.1", "3.5", "setosa")]
    for names, why in zip(said, ("two of a", "one is empty", "256", "some are numbers"), strict=True):
        with pytest.warns(InputWarning, match=why):
            loaded = pronghorn.load(proto).calibrated(floats(8, 3), columns=names)
        assert json.loads(loaded.plan().to_json())["columns"] == []
    # Those that differ in case alone are told apart, and numbers are names where the model has them.
    path = written(tmp_path, "A,a,b\n1,2,3\n")
    assert load_images(path, (3,), Preprocessing(), columns=("a", "B", "A")).images.tolist() == [[2, 3, 1]]
    path = written(tmp_path, "A,x\n1,2\n")
    with pytest.raises(InputError, match="lacks the columns a"):
        load_images(path, (2,), Preprocessing(), columns=("A", "a"))
    # Places are no names, and a missing value is none.
    path = written(tmp_path, "1,0\n1,2\n4,5\n")
    assert load_images(path, (2,), Preprocessing(), columns=("0", "1")).images.shape == (3, 2)
    with pytest.raises(InputError, match=r"row 1, column '2' of .* holds 'nan'"):
        load_images(written(tmp_path, "1,nan\n1,2\n"), (2,), Preprocessing())
    path = written(tmp_path, "410,400,x\n1,2,3\n4,5,6\n")
    assert load_images(path, (2,), Preprocessing(), columns=("400", "410")).images.tolist() == [[2, 1], [5, 4]]
    path = written(tmp_path, "410,400\n1,2\n4,5\n")
    assert load_images(path, (2,), Preprocessing(), columns=("400", "410")).images.tolist() == [[2, 1], [5, 4]]
    assert load_images(path, (2,), Preprocessing()).images.shape == (3, 2)


def test_the_column_of_labels_is_the_likeliest(tmp_path: Path) -> None:
    """A feature may be called y, where another column is called label."""
    path = written(tmp_path, "x,y,z,label\n1,2,3,0\n4,5,6,1\n")
    found = load_images(path, (3,), Preprocessing())
    assert found.columns == ("x", "y", "z")
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1]
    with pytest.raises(InputError, match="--labels y: the model takes this column"):
        load_images(path, (3,), Preprocessing(), "y", ("x", "y", "z"))


def test_names_may_have_the_commas_of_other_files(tmp_path: Path) -> None:
    for name, text in (("x.csv", '"a, in m";"b, in s"\n1;2\n'), ("x.tsv", "a, in m, b\tc, d, e\n1\t2\n")):
        found = load_images(written(tmp_path, text, name), (2,), Preprocessing())
        assert found.images.tolist() == [[1, 2]]


def test_columns_of_models_with_an_input_for_each(tmp_path: Path) -> None:
    """As skl2onnx makes them of a frame: the inputs' names are the columns'."""
    nodes = [node("Concat", "age Weight height", "x", axis=1), node("Gemm", "x w", "y")]
    proto = model(nodes, ("N", 1), {"w": floats(3, 2)}, inputs=tuple(ROWS))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    loaded = pronghorn.load(tmp_path / "m.onnx")
    wanted = loaded.run_float(np.array(Frame(ROWS)))
    other = {name: ROWS[name] for name in ("height", "age", "Weight")}
    np.testing.assert_array_equal(loaded.run_float(Frame(other)), wanted)
    calibrated = loaded.calibrated(Frame({name: values * 8 for name, values in other.items()}))
    assert json.loads(calibrated.plan().to_json())["columns"] == list(ROWS)
    path = reordered(tmp_path, ["id", *other], "own.csv")
    plan = CliRunner().invoke(app, ["plan", str(tmp_path / "m.onnx"), "--data", str(path)])
    assert f"columns: {', '.join(ROWS)}" in plan.output
    # Other names are taken by place, and are then the plan's.
    renamed = Frame(dict(zip("abc", ROWS.values(), strict=True)))
    np.testing.assert_array_equal(loaded.run_float(renamed), wanted)
    with pytest.warns(InputWarning, match="taken in their order, since none has the name of an input"):
        assert json.loads(loaded.calibrated(renamed).plan().to_json())["columns"] == ["a", "b", "c"]


def test_columns_are_found_by_inputs_that_are_called_after_them(tmp_path: Path) -> None:
    """skl2onnx writes `mean_radius` for `mean radius`."""
    inputs = ("mean_radius", "_1st", "Montant____")
    nodes = [node("Concat", " ".join(inputs), "x", axis=1), node("Gemm", "x w", "y")]
    proto = model(nodes, ("N", 1), {"w": floats(3, 2)}, inputs=inputs)
    columns = dict(zip(("mean radius", "1st", "Montant (€)"), ROWS.values(), strict=True))
    shuffled = {name: columns[name] for name in ("1st", "Montant (€)", "mean radius")}
    loaded = pronghorn.load(proto)
    wanted = loaded.run_float(np.array(Frame(columns)))
    np.testing.assert_array_equal(loaded.run_float(Frame(shuffled)), wanted)
    calibrated = loaded.calibrated({name: values * 8 for name, values in shuffled.items()})
    assert json.loads(calibrated.plan().to_json())["columns"] == list(inputs)
    np.testing.assert_array_equal(calibrated.run_float(Frame(shuffled)), wanted)
    with pytest.raises(InputError, match=r"mean_radius twice \(mean_radius, mean radius\)"):
        loaded.run_float(Frame({**columns, "mean_radius": columns["1st"]}))


def test_new_samples_are_found_by_the_known_names() -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    loaded = pronghorn.load(proto, samples=Frame({name: values * 8 for name, values in ROWS.items()}))
    other = Frame({name: ROWS[name] * 8 for name in ("height", "age", "Weight")})
    for samples in (other, np.array(Frame({name: values * 8 for name, values in ROWS.items()}))):
        report = loaded.verify(Frame({name: ROWS[name] for name in other.columns}), samples=samples, secure=False)
        assert report.relative_error < 0.1
    assert json.loads(loaded.calibrated(floats(8, 3), columns=("p", "q", "r")).plan().to_json())["columns"][0] == "p"


def test_clients_find_columns_by_the_owners_names(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    frame = Frame({name: values * 8 for name, values in ROWS.items()})
    loaded = pronghorn.load(proto, samples=frame)
    plan = loaded.plan()
    assert f"columns: {', '.join(ROWS)}" in str(plan)
    other = Frame({name: ROWS[name] for name in ("height", "age", "Weight")})
    wanted = loaded.run_float(np.array(Frame(ROWS)))
    np.testing.assert_array_equal(loaded.run_float(other), wanted)
    assert loaded.verify(other).relative_error < 0.1
    with (
        pronghorn.serve(loaded, "127.0.0.1:0") as server,
        pronghorn.connect(server.address) as client,
    ):
        assert client.columns == tuple(ROWS)
        found = client.predict(np.array(Frame(ROWS)))
        np.testing.assert_array_equal(client.predict(other), found)
        with pytest.raises(InputError, match="the data frame lacks the columns Weight"):
            client.predict(Frame({"height": [1.0], "age": [2.0], "mass": [3.0]}))
    # The same from files, in two processes.
    data = reordered(tmp_path, list(ROWS), "own.csv")
    out = tmp_path / "out.npy"
    with _processes.served(tmp_path / "m.onnx", "two-party", ["--data", str(data)]) as served:
        for names in (list(ROWS), ["height", "id", "age", "Weight"]):
            path = reordered(tmp_path, names, "rows.csv")
            _processes.predict(served.address, "two-party", path, ["--out", str(out)])
            results = np.load(out)
            assert np.abs(results - wanted).max() < 0.1 * np.abs(wanted).max()


def test_columns_are_of_any_shape(tmp_path: Path) -> None:
    proto = model([node("Conv", "x w", "y")], (1, 1, 2, 2), {"w": floats(1, 1, 2, 2)})
    path = written(tmp_path, "a,b,c,d\n1,2,3,4\n5,6,7,8\n")
    found = load_images(path, (1, 2, 2), Preprocessing())
    loaded = pronghorn.load(proto).calibrated(found.images, columns=found.columns)
    assert json.loads(loaded.plan().to_json())["columns"] == ["a", "b", "c", "d"]


def test_samples_are_spread_over_sorted_tables(tmp_path: Path) -> None:
    """Of more rows than are used, the last are met too."""
    rows = np.sort(np.random.default_rng(1).uniform(0, 16, (TABLE_SAMPLES + 500, 3)).astype(np.float32), axis=0)
    np.save(tmp_path / "sorted.npy", rows)
    proto = model([node("MatMul", "x g", "y")], ("N", 3), {"g": floats(3, 2)})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    ask = ["plan", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "sorted.npy"), "--json"]
    found = CliRunner().invoke(app, ask)
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout)["steps"][0]["value"]
    assert value["high"] / 2 ** value["fraction_bits"] > 15


@pytest.mark.parametrize("more", [[], ["--batch", "--out", "found.csv"]])
def test_tables_without_rows_are_refused(tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    proto = model([node("Gemm", "x w", "y")], ("N", 3), {"w": floats(3, 2)})
    path = written(tmp_path, "age,Weight,height\n")
    with pronghorn.serve(pronghorn.load(proto, samples=floats(20, 3)), "127.0.0.1:0") as server:
        found = CliRunner().invoke(app, ["predict", str(path), "--server", server.address, *more])
    assert found.exit_code == 2
    assert "has a header alone, and no rows" in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize("number", ["57,0", "-1.234,5", " 0,25"])
def test_decimal_commas_are_told(tmp_path: Path, number: str) -> None:
    path = written(tmp_path, f"a;b\n1;2\n3;{number}\n")
    with pytest.raises(InputError, match=r"row 3, column 'b' of [^\n]*\n.* decimal point"):
        load_images(path, (2,), Preprocessing())


def test_decimal_commas_without_names(tmp_path: Path) -> None:
    """Their commas part no columns."""
    path = written(tmp_path, "1,5;2;3\n3;4,25;-5,0\n")
    with pytest.raises(InputError, match=r"row 1, column '1' of [^\n]*\n.* decimal point"):
        load_images(path, (3,), Preprocessing())


def test_decimal_commas_beside_texts(tmp_path: Path) -> None:
    path = written(tmp_path, "1,5;x\n2,5;true\n")
    assert read_table(path, has_header=False, categories=[0, 1]).values.tolist() == [["1,5", "x"], ["2,5", "true"]]


@pytest.mark.parametrize("number", ["1_000", "\uff11\uff12", "1_2.5"])
def test_what_python_alone_reads_is_no_number(tmp_path: Path, number: str) -> None:
    path = written(tmp_path, f"a,b\n1,2\n3,{number}\n")
    with pytest.raises(InputError, match=r"row 3, column 'b' of .*, which is no number"):
        load_images(path, (2,), Preprocessing())


@pytest.mark.parametrize("number", ["12.0%", "1,564.0", "$3.5", "-5 %", "1'234.5"])
def test_decorated_numbers_are_told(tmp_path: Path, number: str) -> None:
    (tmp_path / "t.csv").write_text(f'a,b\n1,2\n3,"{number}"\n')
    with pytest.raises(InputError, match=r"row 3, column 'b' of [^\n]*\n.* write plain numbers"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(("encoding", "says"), [("utf-16", "UTF-8, not UTF-16"), ("latin-1", "save it as UTF-8$")])
def test_other_encodings_are_told(tmp_path: Path, encoding: str, says: str) -> None:
    (tmp_path / "t.csv").write_text("é,b\n1,2\n", encoding=encoding)
    with pytest.raises(InputError, match=says):
        read_table(tmp_path / "t.csv")


def test_gzipped_tables(tmp_path: Path) -> None:
    text = "a,b,label\n1,2.5,0\n3,4.5,1\n"
    for name, content in (("t.csv.gz", text), ("t.TSV.GZ", text.replace(",", "\t"))):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
        for read in (load_images, open_images):
            found = read(tmp_path / name, (2,), Preprocessing())
            assert found.labels is not None
            assert found.labels.tolist() == [0, 1]
        loaded = load_images(tmp_path / name, (2,), Preprocessing())
        np.testing.assert_array_equal(loaded.images, [[1, 2.5], [3, 4.5]])
        assert loaded.columns == ("a", "b")
    wrong = {
        "plain.csv.gz": text.encode(),
        "cut.csv.gz": gzip.compress(text.encode() * 9)[:-9],
        "bad.csv.gz": gzip.compress(text.encode())[:10] + b"\xff" * 40,
        "wide.csv.gz": gzip.compress(text.encode("utf-16")),
    }
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name} cannot be read as CSV"):
            load_images(tmp_path / name, (2,), Preprocessing())
    with pytest.raises(InputError, match="save it as UTF-8, not UTF-16"):
        load_images(tmp_path / "wide.csv.gz", (2,), Preprocessing())


def test_semicolons_between_tabs(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("name\tx;y\tz\na;b\t1\t2\n")
    assert read_table(path, categories=[0]).names == ("name", "x;y", "z")
