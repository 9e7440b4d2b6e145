"""Triples as people have them are read right, or refused with file, line, what was seen and what to pass."""

import bz2
import csv
import gzip
import io
import lzma
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import workbench as wb

TRIPLES = [("ann", "knows", "bob"), ("bob", "knows", "#1"), ("#1", "likes", "ann"), ("#2 ", "likes", "bob")]
READ = [tuple(name.strip() for name in triple) for triple in TRIPLES]
TABLE = pd.DataFrame(READ, columns=["head", "relation", "tail"])
HEADER = "looks like a header and is skipped"


def named(kg: wb.links.KnowledgeGraph, part: str = "train") -> list[tuple[str, str, str]]:
    assert kg.entity_names is not None and kg.relation_names is not None
    e, r = list(kg.entity_names), list(kg.relation_names)
    return [(e[h], r[t], e[o]) for h, t, o in getattr(kg, part).tolist()]


def text(triples: Any, separator: str = "\t", end: str = "\n") -> str:
    return "".join(separator.join(triple) + end for triple in triples)


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("triples.tsv", data)
        archive.writestr("__MACOSX/._triples.tsv", b"\0")
    return file.getvalue()


def tsv(table: Any, **options: Any) -> str:
    return table.to_csv(sep="\t", **options)


PLAIN = text(TRIPLES)
GOOD: dict[str, tuple[str | bytes, dict[str, Any]]] = {
    "names begin with #": (text(TRIPLES[2:] + TRIPLES[:2]), {}),
    "comments first": ("# FB15k\n#\n# of 2015\n" + PLAIN, {}),
    "comment with tabs": ("# head\trelation\ttail\n" + PLAIN, {}),
    "comment later": (PLAIN + "# the end\n", {}),
    "blank lines": ("\n" + PLAIN.replace("\n", "\n \t \n\n"), {}),
    "no last end": (PLAIN[:-1], {}),
    "crlf": (text(TRIPLES, end="\r\n"), {}),
    "cr": (text(TRIPLES, end="\r"), {}),
    "trailing tab": (text(TRIPLES, end="\t\n"), {}),
    "bom": (PLAIN.encode("utf-8-sig"), {}),
    "bom and comment": (("# a\n" + PLAIN).encode("utf-8-sig"), {}),
    "two files with bom": (b"".join(line.encode("utf-8-sig") for line in PLAIN.splitlines(keepends=True)), {}),
    "utf-16": (PLAIN.encode("utf-16"), {}),
    "utf-16-be": (PLAIN.encode("utf-16-be"), {"encoding": "utf-16-be"}),
    "ebcdic": (PLAIN.encode("cp037"), {"encoding": "cp037"}),
    "commas": (text(READ, ","), {"separator": ","}),
    "semicolons": (text(READ, " ; "), {"separator": ";"}),
    "blanks": (text(READ, "   "), {"separator": " "}),
    "long separator": (text(READ, "|||"), {"separator": "|||"}),
    "header": (tsv(TABLE, index=False), {}),
    "header skipped": (tsv(TABLE, index=False), {"skip": 1}),
    "header and index": (tsv(TABLE), {}),
    "index": (tsv(TABLE, header=False), {"columns": (1, 2, 3)}),
    "other order": (tsv(TABLE[["head", "tail", "relation"]], index=False), {}),
    "other order, columns": (
        tsv(TABLE[["head", "tail", "relation"]], index=False, header=False),
        {"columns": (0, 2, 1)},
    ),
    "words": (tsv(TABLE.set_axis(["Subject", "PredicateURI", "object_id"], axis=1), index=False), {}),
    "times": (tsv(TABLE.assign(at=2014), header=False, index=False), {"columns": range(3)}),
    "by name": (tsv(TABLE.set_axis(["von", "wie", "zu"], axis=1)), {"columns": ("von", "wie", "zu")}),
    "titles": ("id 1\n" + PLAIN, {"skip": 1}),
}


@pytest.mark.parametrize("name", GOOD)
def test_read_right(tmp_path: Path, name: str) -> None:
    content, options = GOOD[name]
    data = content.encode() if isinstance(content, str) else content
    expected = READ[2:] + READ[:2] if name == "names begin with #" else READ
    has_header = name in ("header", "header and index", "other order", "words")
    for end, pack in (
        (".txt", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zip", zipped),
    ):
        path = tmp_path / f"triples{end}"
        path.write_bytes(pack(data))
        with pytest.warns(UserWarning, match=HEADER) if has_header else nullcontext():
            kg = wb.links.read_knowledge_graph(path, **options)
        assert named(kg) == expected
        appearance = dict.fromkeys(name for head, _, tail in expected for name in (head, tail))
        assert kg.entity_names == list(appearance) and not kg.notes


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("a\tr\tb\n#c\tr\n", {}, r"line 2: '#c\\tr' has 2 names"),
        (
            "a\tr\tb\nb\tr\n",
            {},
            r"line 2: 'b\\tr' has 2 names between '\\t'; it must have three: head, relation, tail$",
        ),
        ("a,r,b\n", {}, r'line 1: .* has 1 names .*; pass separator=","'),
        ("a r b\n", {}, r'line 1: .*; pass separator=" "'),
        ("a\tr\tb\n", {"separator": ","}, r'line 1: .*; pass separator="\\t"'),
        ("a\tr\tb\t5\n", {}, r"line 1: .* has 4 names .*; pass columns="),
        ("a\tr\tb\nc\tr\tb\t5\n", {}, r"line 2: .* has 4 names"),
        ("a\tr\tb\t5\nc\tr\tb\n", {"columns": (0, 1, 2)}, r"line 2: .* must have 4 columns"),
        ("a\tr\tb\n", {"columns": (0, 1, 3)}, r"line 1: .* must have 4 columns"),
        ("a\tr\tb\n", {"columns": ("h", "r", "t")}, r"line 1: .* does not name each of"),
        ("a\t\tb\n", {}, r"line 1: .* has 2 names"),
        ("2\n0 1 0\n1 0 0\n", {}, r"line 1: '2' .*pass skip=1 .*OpenKE.*columns=\(0, 2, 1\)"),
        ('a,r,"b\n', {"separator": ","}, r"line 1: .* has a quote that does not end"),
        ("a\tr\tb\nMüller\tr\tb\n".encode("latin-1"), {}, r"line 2: .* is not utf-8; .*encoding=.latin-1"),
        ("# M\xfcller\na\tr\tb\n".encode("latin-1"), {}, r"line 1: .* is not utf-8"),
        ("a\tr\tb\n".encode("utf-16-le"), {}, r'NUL bytes.*encoding="utf-16-le"'),
        ("a\tr\tb\n".encode("utf-8-sig"), {"encoding": "latin-1"}, r"byte order mark of utf-8, but encoding is"),
        (b"\x89HDF\r\n\x1a\n\0\0", {}, r"is an HDF5 file, not text"),
        (b"PAR1\x15\x04", {}, r"is a Parquet file, not text"),
        (gzip.compress(b"a\tr\tb\n" * 99, mtime=0)[:-8], {}, r"can't be decompressed"),
        ("<!doctype html><html>", {}, r"is a web page"),
    ],
)
def test_refused(tmp_path: Path, content: str | bytes, options: dict[str, Any], words: str) -> None:
    path = tmp_path / "triples.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(wb.DataError, match=words) as refused:
        wb.links.read_knowledge_graph(path, **options)
    assert "triples.txt" in str(refused.value)
    opened = [file.resolve() for file in Path("/proc/self/fd").glob("*") if file.is_symlink()]
    assert path not in opened, "the error holds the file open"


def test_a_name_that_begins_like_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("PAR1\tbinds\tF2\nBZh9\tbinds\tPAR1\n")
    assert len(named(wb.links.read_knowledge_graph(tmp_path / "a.txt"))) == 2


def test_what_only_may_be_a_header_warns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    rows = [(f"e{i % 5}", f"r{i % 3}", f"e{(i * i + 1) % 7}") for i in range(30)]
    rows = list(dict.fromkeys(rows))
    path.write_text(text([("Kopf", "Beziehung", "Ende"), *rows]))
    with pytest.warns(UserWarning, match=r"a\.txt, line 1 may be a header.*pass skip=1.*skip=0"):
        assert named(wb.links.read_knowledge_graph(path))[0] == ("Kopf", "Beziehung", "Ende")
    assert named(wb.links.read_knowledge_graph(path, skip=1)) == rows
    assert len(wb.links.read_knowledge_graph(path, skip=0).train) == 1 + len(rows)
    short = [("e1", "r", "e2"), ("e2", "s", "e3")]
    for triples in (
        [("h", "r", "t"), ("t", "r", "h")],
        [("subject", "relation", "object")],
        short,
    ):  # in use, or all there is
        path.write_text(text(triples))
        assert named(wb.links.read_knowledge_graph(path)) == triples
    path.write_text("# x\ty\tz\na\tr\tb\n")
    with pytest.warns(UserWarning, match=r"line 1: .* is taken for a comment; pass skip=0"):
        wb.links.read_knowledge_graph(path)
    assert named(wb.links.read_knowledge_graph(path, skip=0))[0] == ("# x", "y", "z")


def test_quoted_names(tmp_path: Path) -> None:
    triples = [("Smith, John", "knows", 'the "boss"'), ("x", "knows", "Smith, John")]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows(triples)
    assert named(wb.links.read_knowledge_graph(tmp_path / "a.csv", separator=",")) == triples
    literal = [('"x"@en', "r", '5" disk'), ("y", "r", '"x"@en')]
    (tmp_path / "a.tsv").write_text(text(literal))
    assert named(wb.links.read_knowledge_graph(tmp_path / "a.tsv")) == literal


def files(tmp_path: Path, **parts: list[tuple[str, str, str]]) -> dict[str, Any]:
    for part, triples in parts.items():
        (tmp_path / f"{part}.tsv").write_text(text(triples))
    return {part: tmp_path / f"{part}.tsv" for part in parts}


UNSEEN = {
    "train": [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")],
    "valid": [("a", "s", "new"), ("b", "s", "b"), ("new", "r", "newer")],
    "test": [("c", "r", "a"), ("newer", "r", "a"), ("a", "t", "b"), ("last", "t", "last")],
}


def test_unseen_names(tmp_path: Path) -> None:
    paths = files(tmp_path, **UNSEEN)
    train = paths.pop("train")
    counts = r"2 of 3 triples of valid have .*\(2 entities, 0 relations\)"
    with pytest.raises(wb.DataError, match=rf"valid\.tsv, line 1: .*the entity 'new'; {counts}.*keep.*drop"):
        wb.links.read_knowledge_graph(train, **paths)
    with pytest.raises(wb.DataError, match=r"test\.tsv, line 2: .*'newer'; 3 of 4 .*\(2 entities, 1 relations\)"):
        wb.links.read_knowledge_graph(train, test=paths["test"])
    kg = wb.links.read_knowledge_graph(train, **paths, unseen="keep")
    assert {part: named(kg, part) for part in UNSEEN} == UNSEEN
    assert kg.entity_names == ["a", "b", "c", "new", "newer", "last"] and kg.relation_names == ["r", "s", "t"]
    assert "2 of 3 triples of valid" in repr(kg) and "3 of 4 triples of test" in kg._repr_html_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kg = wb.links.read_knowledge_graph(train, **paths, unseen="drop")
    assert [str(w.message).split(" have")[0] for w in caught] == ["2 of 3 triples of valid", "3 of 4 triples of test"]
    assert (named(kg, "valid"), named(kg, "test")) == ([("b", "s", "b")], [("c", "r", "a")])
    assert kg.entity_names == ["a", "b", "c"] and kg.relation_names == ["r", "s"]
    with pytest.raises(ValueError, match="unseen 'ignore' is not known"):
        wb.links.read_knowledge_graph(train, unseen="ignore")  # type: ignore[arg-type]


def test_triples_of_an_earlier_file(tmp_path: Path) -> None:
    train = [("a", "r", "b"), ("b", "r", "a")]
    valid, test = [("a", "r", "a"), ("a", "r", "b")], [("b", "r", "b"), ("a", "r", "a")]
    paths = files(tmp_path, train=train, valid=valid, test=test)
    file = paths.pop("train")
    with pytest.raises(
        wb.DataError, match=r"valid\.tsv, line 2 is a triple of .*train\.tsv, line 1; 1 of 2 triples of valid"
    ):
        wb.links.read_knowledge_graph(file, **paths)
    kg = wb.links.read_knowledge_graph(file, **paths, overlap="keep")
    assert (named(kg, "valid"), named(kg, "test")) == (valid, test) and len(kg.notes) == 2
    with pytest.warns(UserWarning, match="1 of 2 triples of (valid|test) are in an earlier file: dropped"):
        kg = wb.links.read_knowledge_graph(file, **paths, overlap="drop")
    assert (named(kg, "valid"), named(kg, "test")) == (valid[:1], test[:1])


def test_a_dropped_name_is_no_other_name(tmp_path: Path) -> None:
    """A number that is given again must not make a triple of one that was dropped."""
    parts = {"train": [("a", "r", "b")], "valid": [("a", "r", "x")], "test": [("a", "r", "y"), ("b", "r", "a")]}
    paths = files(tmp_path, **parts)
    with pytest.warns(UserWarning, match="dropped"):
        kg = wb.links.read_knowledge_graph(paths["train"], valid=paths["valid"], test=paths["test"], unseen="drop")
    assert named(kg, "test") == [("b", "r", "a")] and not len(kg.valid)


def ranks(kg: wb.links.KnowledgeGraph, names: list[str], relations: list[str], test: torch.Tensor) -> torch.Tensor:
    """Filtered ranks of a decoder whose rows depend on names alone."""
    assert kg.entity_names is not None and kg.relation_names is not None
    at = {name: i for i, name in enumerate(names)}
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(names), 8, generator=generator)[[at[name] for name in kg.entity_names]]
    decoder = wb.nn.DistMult(8, num_relations=kg.num_relations)
    by_name = torch.randn(len(relations), 8, generator=generator)
    with torch.no_grad():
        decoder.relations.copy_(by_name[[relations.index(name) for name in kg.relation_names]])
    return wb.training.rank_triples(decoder, rows, test, known=kg)


def as_published(kg: wb.links.KnowledgeGraph, folder: Path) -> dict[str, Any]:
    assert kg.entity_names is not None and kg.relation_names is not None
    return files(folder, **{part: named(kg, part) for part in ("train", "valid", "test")})


def wn18rr_like() -> wb.links.KnowledgeGraph:
    """Of WN18RR's shape in little: 11 relations, and test triples with entities that training lacks."""
    generator = torch.Generator().manual_seed(1)
    heads, tails = torch.randint(300, (2, 900), generator=generator)
    triples = torch.stack([heads, torch.arange(900) % 11, tails], 1).unique(dim=0)
    triples = triples[torch.randperm(len(triples), generator=generator)]
    train, valid, test = triples[:500], triples[500:560], triples[560:700]
    used = torch.cat((train, valid, test))[:, [0, 2]].unique()
    new = torch.full((300,), -1).index_put((used,), torch.arange(len(used)))
    train, valid, test = (torch.stack([new[t[:, 0]], t[:, 1], new[t[:, 2]]], 1) for t in (train, valid, test))
    names: dict[str, Any] = {
        "entity_names": [f"{i:08d}" for i in range(len(used))],
        "relation_names": [f"_rel{i}" for i in range(11)],
    }
    return wb.links.KnowledgeGraph.build(train, valid, test, num_entities=len(used), num_relations=11, **names)


def check_same(kg: wb.links.KnowledgeGraph, paths: dict[str, Any], count: int) -> wb.links.KnowledgeGraph:
    """Text and arrays have the same candidates, filters and ranks."""
    train = paths.pop("train")
    read = wb.links.read_knowledge_graph(train, **paths, unseen="keep")
    assert kg.entity_names is not None and kg.relation_names is not None and read.entity_names is not None
    assert set(read.entity_names) == set(kg.entity_names) and read.num_entities == kg.num_entities
    for part in ("train", "valid", "test"):
        assert named(read, part) == named(kg, part)
    names, relations = list(kg.entity_names), list(kg.relation_names)
    of_text, of_arrays = (ranks(g, names, relations, g.test[:count]) for g in (read, kg))
    assert torch.equal(of_text, of_arrays)
    return read


def test_published_splits_are_those_of_arrays(tmp_path: Path) -> None:
    kg = wn18rr_like()
    paths = as_published(kg, tmp_path)
    trained = kg.train[:, [0, 2]].unique()
    unseen = int((~torch.isin(kg.test[:, [0, 2]], trained)).any(1).sum())
    assert unseen > 5
    read = check_same(kg, paths, len(kg.test))
    assert any(f"{unseen} of {len(kg.test)} triples of test" in note for note in read.notes)


@pytest.mark.slow
def test_fb15k_237_as_published(tmp_path: Path) -> None:
    try:
        kg = wb.load_dataset("fb15k-237")
    except FileNotFoundError:
        pytest.skip("needs fb15k-237.npz in the data folder")
    assert isinstance(kg, wb.links.KnowledgeGraph)
    read = check_same(kg, as_published(kg, tmp_path), 500)
    assert [note.split(" have")[0] for note in read.notes] == [
        "9 of 17,535 triples of valid",
        "28 of 20,466 triples of test",
    ]
    assert ["(8 entities" in read.notes[0], "(29 entities" in read.notes[1]] == [True, True]
