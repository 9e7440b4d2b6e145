"""A corpus of small edge lists as people have them, each with its edges, or with what the refusal says.

The edges are those of the graph that other libraries wrote (scipy, pandas, networkx, numpy), or are spelled out.
"""

import io
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse

EDGES = [(0, 1), (0, 4), (3, 2), (2, 0), (4, 4)]
TABLE = pd.DataFrame(EDGES, columns=["source", "target"])
WEIGHTED = TABLE.assign(weight=[0.5, 1.0, 2.25, -1.0, 3.0])
LINES = "0 1\n0 4\n3 2\n2 0\n4 4\n"
BANNER = "%%MatrixMarket matrix coordinate "


@dataclass(frozen=True)
class Case:
    """A file and what comes of it: edges in order, or a pattern that the message matches."""

    name: str
    content: str | bytes
    expected: list[tuple[int, int]] | str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.encode()


def matrix(values: Any, **options: Any) -> str:
    """What scipy writes, with the symmetry that it finds."""
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.coo_array(values), **options)
    return file.getvalue().decode()


def matrix_edges(text: str) -> list[tuple[int, int]]:
    """What scipy reads: row and column of every entry."""
    found: Any = scipy.sparse.coo_array(scipy.io.mmread(io.BytesIO(text.encode())))
    return sorted(zip(found.row.tolist(), found.col.tolist(), strict=True))


def csv(table: Any, **options: Any) -> str:
    return table.to_csv(**options)


def written(writer: Any, graph: nx.Graph, **options: Any) -> str:
    file = io.BytesIO()
    writer(graph, file, **options)
    return file.getvalue().decode()


def _matrices() -> list[Case]:
    general = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 5]])
    symmetric = np.array([[1, 2, 0], [2, 0, 3], [0, 3, 0]])
    skew = np.array([[0, 2, 0], [-2, 0, 3], [0, -3, 0]])
    texts = {
        "integer": matrix(general),
        "real": matrix(general * 0.5, comment="a comment\nof two lines"),
        "pattern": matrix(general, field="pattern"),
        "symmetric integer": matrix(symmetric),
        "symmetric real": matrix(symmetric / 3),
        "symmetric pattern": matrix(symmetric, field="pattern"),
        "skew": matrix(skew),
        "empty": matrix(np.zeros((3, 3))),
        "capitals": "%%MatrixMarket MATRIX Coordinate REAL General\n2 2 1\n1 2 1e3\n",
        "blank lines": f"{BANNER}real general\n\n%\n\n  2 2 1\n\n 1 2 1\n\n",
        "crlf": f"{BANNER}pattern general\r\n2 2 1\r\n1 2\r\n",
        "no last end": f"{BANNER}pattern symmetric\n2 2 2\n2 1\n2 2",
    }
    good = [Case(f"{name}.mtx", text, matrix_edges(text)) for name, text in texts.items()]
    good.append(Case("named otherwise.txt", texts["symmetric real"], matrix_edges(texts["symmetric real"])))
    bad = [
        Case("array.mtx", matrix_array(), r"line 1: .*'array' where coordinate is needed.*coo_array"),
        Case("complex.mtx", matrix(general * 1j), r"line 1: .*'complex' where real"),
        Case("rectangular.mtx", matrix(np.ones((2, 3))), r"line 3: '2 3 6' is the size of a rectangular matrix"),
        Case("few.mtx", f"{BANNER}pattern general\n3 3 2\n1 2\n", r"has 1 entries, but line 2 announces 2"),
        Case("many.mtx", f"{BANNER}pattern general\n3 3 1\n1 2\n2 3\n", r"has 2 entries, but line 2 announces 1"),
        Case("large.mtx", f"{BANNER}pattern general\n3 3 1\n1 4\n", r"line 3: '1 4' has the id 4.* 3 nodes .*\[1, 4\)"),
        Case("zero.mtx", f"{BANNER}pattern general\n3 3 1\n0 1\n", r"line 3: '0 1' has an id below 1.*begin at 1"),
        Case("no value.mtx", f"{BANNER}real general\n3 3 1\n1 2\n", r"line 3: '1 2' has 2 columns.*have 3"),
        Case("value.mtx", f"{BANNER}pattern general\n3 3 1\n1 2 5\n", r"line 3: '1 2 5' has 3 columns.*have 2"),
        Case("no size.mtx", f"{BANNER}pattern general\n% only\n", r"ends before the line with the size"),
        Case("sizes.mtx", f"{BANNER}pattern general\n3 3\n1 2\n", r"line 2: '3 3' must be the size"),
        Case("no banner.mtx", "3 3 2\n1 2\n2 3\n", r"line 1: '3 3 2' is not the banner.*base=1"),
        Case("nothing.mtx", "", r"ends before the line with its sizes"),
        Case("columns.mtx", texts["pattern"], r"says how the file is to be read; omit columns=", {"columns": (0, 1)}),
        Case("base.mtx", texts["pattern"], r"omit columns=, skip= and base=", {"base": 0}),
    ]
    explicit = {"skip": 1, "columns": (0, 1), "base": 1}
    return [*good, *bad, Case("explicit.mtx", "3 3 2\n1 2\n2 3\n", [(0, 1), (1, 2)], explicit)]


def matrix_array() -> str:
    file = io.BytesIO()
    scipy.io.mmwrite(file, np.eye(2))
    return file.getvalue().decode()


def _tables() -> list[Case]:
    index = r"looks like the header that pandas writes above an index.*skip=1"
    columns = r"line 1: .* has 3 columns, and no header says.*columns=\(0, 1\)"
    plain = TABLE.rename(columns={"source": 0, "target": 1})
    return [
        Case("plain.csv", csv(TABLE, index=False, header=False), EDGES),
        Case("header.csv", csv(TABLE, index=False), EDGES),
        Case("index.csv", csv(TABLE), EDGES),
        Case("index and weight.csv", csv(WEIGHTED), EDGES),
        Case("weight.csv", csv(WEIGHTED, index=False), EDGES),
        Case("reversed.csv", csv(TABLE[["target", "source"]], index=False), EDGES),
        Case("named index.csv", csv(TABLE.rename_axis("edge")), EDGES),
        Case("numbered.csv", csv(plain), index),
        Case("numbered, columns.csv", csv(plain), index, {"columns": (1, 2)}),
        Case("numbered, skipped.csv", csv(plain), EDGES, {"columns": (1, 2), "skip": 1}),
        Case("index without header.csv", csv(TABLE, header=False), columns),
        Case("index, columns.csv", csv(TABLE, header=False), EDGES, {"columns": (1, 2)}),
        Case("weight without header.csv", csv(WEIGHTED, index=False, header=False), columns),
        Case("weight, columns.csv", csv(WEIGHTED, index=False, header=False), EDGES, {"columns": (0, 1)}),
        Case("other names.csv", csv(TABLE.rename(columns={"source": "user", "target": "item"}), index=False), "line 1"),
        Case("by name.csv", "a,user,item\n9,0,1\n9,3,2\n", [(0, 1), (3, 2)], {"columns": ("user", "item")}),
        Case("no such name.csv", "a,user,item\n9,0,1\n", "line 1.*'movie'", {"columns": ("user", "movie")}),
        Case("quotes.csv", csv(TABLE.astype(str), index=False, quoting=1), EDGES),
        Case("quoted text.csv", 'source,target,title\n0,1,"a, ""b"""\n3,2,c\n', [(0, 1), (3, 2)]),
        Case("open quote.csv", 'source,target,title\n0,1,"a\nb"\n', r"line 2: .* has a quote that does not end"),
        Case("semicolons.csv", csv(WEIGHTED, index=False, sep=";", decimal=","), EDGES),
        Case("bars.txt", csv(TABLE, index=False, header=False, sep="|"), EDGES),
        Case("tabs and text.tsv", "src\tdst\tname\n0\t1\ta b\n3\t2\tc\n", [(0, 1), (3, 2)]),
        Case("crlf.csv", csv(TABLE, index=False, lineterminator="\r\n"), EDGES),
        Case("cr.csv", csv(TABLE, index=False, lineterminator="\r"), EDGES),
        Case("bom.csv", csv(TABLE, index=False).encode("utf-8-sig"), EDGES),
        Case("utf-16.csv", csv(TABLE, index=False).encode("utf-16"), EDGES),
        Case("utf-16 be.csv", csv(TABLE, index=False).encode("utf-16-be"), r'encoding="utf-16-be"'),
        Case("utf-16 passed.csv", csv(TABLE).encode("utf-16-be"), EDGES, {"encoding": "utf-16-be"}),
        Case("latin-1 text.csv", "source,target,name\n0,1,Müller\n".encode("latin-1"), [(0, 1)]),
        Case("latin-1 id.csv", "0,1\nMüller,2\n".encode("latin-1"), r"line 2: .* is not utf-8; pass encoding="),
        Case("floats.csv", csv(TABLE.astype(float), index=False), EDGES),
        Case("fractions.csv", "0.5,1\n", r"line 1: '0.5,1' does not have a whole number in column 1"),
        Case("missing.csv", csv(TABLE.astype(float).replace(3, np.nan), index=False), r"line 4: ',2.0' does not have"),
        Case("missing weight.csv", "source,target,w\n0,1,\n3,2,5\n", [(0, 1), (3, 2)]),
        Case("trailing.csv", "0,1,\n3,2,\n", [(0, 1), (3, 2)]),
        Case("R.txt", '"from" "to"\n"1" 0 1\n"2" 3 2\n', r"line 1: .* has 2 columns, but the lines below have 3"),
        Case("two sources.csv", "source,src,target\n1,2,3\n", r"line 1: .*columns"),
        Case("position.csv", "0,1\n", r"has 2 columns, but columns= has position 2", {"columns": (0, 2)}),
        Case("excel.csv", "sep=;\nsource;target\n0;1\n", [(0, 1)], {"skip": 1}),
    ]


def _lists() -> list[Case]:
    directed = nx.DiGraph(EDGES)
    wide = nx.DiGraph([(0, 1), (0, 2), (0, 3), (1, 2)])
    snap = "# Directed graph: web.txt\n# Nodes: 5 Edges: 5\n# FromNodeId\tToNodeId\n" + LINES.replace(" ", "\t")
    adjacency = r"columns.*adjacency list.*read_adjlist"
    in_order = list(directed.edges)
    save = io.StringIO()
    np.savetxt(save, EDGES)
    return [
        Case("networkx.edgelist", written(nx.write_edgelist, directed, data=False), in_order),
        Case("networkx data.edgelist", written(nx.write_edgelist, directed), in_order),
        Case("networkx weights.edgelist", written(nx.write_edgelist, weights(directed)), in_order),
        Case(
            "networkx weighted.edgelist", written(nx.write_weighted_edgelist, weights(directed)), r"line 1.*3 columns"
        ),
        Case("networkx.adjlist", written(nx.write_adjlist, wide), adjacency),
        Case("regular.adjlist", "0 1 2\n1 2 0\n2 0 1\n", adjacency),
        Case("short.adjlist", LINES + "1 2 3\n", r"line 6: '1 2 3' has 3 columns.*have 2.*adjacency list"),
        Case("alone.adjlist", LINES + "1\n", r"line 6: '1' has 1 column,.*adjacency list"),
        Case("later.adjlist", LINES * 50_000 + "1 2 3\n", r"line 250001: '1 2 3' has 3 columns"),
        Case("snap.txt", snap, EDGES),
        Case("signs.txt", "# FromNodeId\tToNodeId\tSign\n0\t1\t-1\n3\t2\t1\n", [(0, 1), (3, 2)]),
        Case("reversed.txt", "# ToNodeId FromNodeId\n1 0\n", [(0, 1)]),
        Case("comments.txt", "# a\n0 1 # b\n\n% c\n  # d\n3 2\n\n", [(0, 1), (3, 2)]),
        Case("comments only.txt", "# a\n% b\n\n", []),
        Case("empty.txt", "", []),
        Case("blanks.txt", "  \n\t\n 0\t 1 \n\n3   2\t\n", [(0, 1), (3, 2)]),
        Case("no end.txt", LINES[:-1], EDGES),
        Case("crlf.txt", LINES.replace("\n", "\r\n"), EDGES),
        Case("bom.txt", ("# a\n" + LINES).encode("utf-8-sig"), EDGES),
        Case("latin-1.txt", ("# Müller\n" + LINES).encode("latin-1"), EDGES),
        Case("plus.txt", "+0 -0\n", [(0, 0)]),
        Case("negative.txt", "0 1\n-1 2\n", r"line 2: '-1 2' has an id below 0 in column 1"),
        Case("huge.txt", f"0 1\n{2**63} 2\n", r"line 2: .* has an id above"),
        Case("large.txt", f"{2**63 - 2} {2**40}\n", [(2**63 - 2, 2**40)]),
        Case("names.txt", "alice bob\n", r"line 1: 'alice bob' does not have a whole number.*pandas.factorize"),
        Case("hex.txt", "0x1 2\n", r"line 1: '0x1 2' does not have a whole number"),
        Case("other digits.txt", "٣ 1\n", r"line 1: '٣ 1' does not have a whole number"),
        Case("underscores.txt", "1_0 1\n", r"line 1: '1_0 1' does not have a whole number"),
        Case("savetxt.txt", save.getvalue(), r"line 1: .* does not have a whole number.*savetxt needs fmt='%d'"),
        Case("arrows.txt", "0 -> 1\n", r"line 1: '0 -> 1' has 3 columns"),
        Case("one column.txt", "0\n1\n", r"line 1: '0' has 1 column"),
        Case("base.txt", "1 2\n2 1\n", [(0, 1), (1, 0)], {"base": 1}),
        Case("below base.txt", "1 2\n0 1\n", r"line 2: '0 1' has an id below 1 .*base=0", {"base": 1}),
        Case("skip.txt", "5 nodes\n" + LINES, EDGES, {"skip": 1}),
        Case("skip all.txt", LINES, r"has 5 lines, but skip is 6", {"skip": 6}),
        Case(
            "sizes.txt",
            "5 5\n" + LINES,
            r"line 1: '5 5' is an edge, or says that there are 5 nodes and 5 edges.*skip=1",
        ),
        Case("sizes from 1.txt", "3 2\n1 2\n2 3\n", r"line 1: '3 2' is an edge, or says"),
        Case("sizes skipped.txt", "5 5\n" + LINES, EDGES, {"skip": 1}),
        Case("no sizes.txt", "5 5\n" + LINES, [(5, 5), *EDGES], {"skip": 0}),
        Case("three sizes.txt", "5 5 5\n" + LINES, r"line 2: '0 1' has 2 columns, but the lines before have 3.*skip="),
    ]


def weights(graph: nx.DiGraph) -> nx.DiGraph:
    return nx.DiGraph((u, v, {"weight": 0.5, "colour": "dark red"}) for u, v in graph.edges)


def _formats() -> list[Case]:
    graph = nx.DiGraph(EDGES)
    # figure 3 of METIS's manual without and with weights of nodes and edges
    plain = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n"
    heavy = "% a comment\n3 2 011\n4 2 1\n% another\n5 1 1 3 2\n5 2 2\n"
    neighbours = [line.split() for line in plain.splitlines()[1:]]
    metis = [(i, int(v) - 1) for i, row in enumerate(neighbours) for v in row]
    return [
        Case("metis.graph", plain, metis),
        Case("weights.graph", heavy, [(0, 1), (1, 0), (1, 2), (2, 1)]),
        Case("isolated.metis", "3 1\n2\n1\n\n", [(0, 1), (1, 0)]),
        Case("few.graph", "3 2\n2\n1\n\n", r"lists 3 nodes and 2 neighbours, but line 1 announces 3 and 4"),
        Case("edge list.graph", LINES, r"line \d: .*columns=\(0, 1\)"),
        Case("edge list, columns.graph", LINES, EDGES, {"columns": (0, 1)}),
        Case(
            "konect.txt",
            "% asym unweighted\n% 2 3 3\n1 2\n3 1\n",
            r"line 1: .*KONECT, where ids begin at 1; pass base=1",
        ),
        Case("sym.txt", "% sym positive\n1 2 5\n", r"KONECT.*each undirected edge is there once"),
        Case("konect, base.txt", "% asym positive\n1 2 5\n3 1 1\n", [(0, 1), (2, 0)], {"base": 1}),
        Case("bip.txt", "% bip unweighted\n1 2\n", r"line 1: .*bipartite graph of KONECT", {"base": 1}),
        Case("pajek.net", written(nx.write_pajek, graph), r"line 1: .*Pajek.*networkx.read_pajek"),
        Case("gml.gml", "\n".join(nx.generate_gml(graph)), r"line 1: .*GML.*networkx.read_gml"),
        Case("graphml.graphml", "\n".join(nx.generate_graphml(graph)), r"line 1: .*GraphML.*networkx.read_graphml"),
        Case("dot.dot", "digraph g {\n0 -> 1;\n}\n", r"line 1: .*Graphviz"),
        Case("json.json", '{"nodes": []}', r"line 1: .*JSON"),
        Case("dimacs.col", "c x\np edge 3 1\ne 1 2\n", r"line 1: .*DIMACS"),
        Case("graph6.g6", written(nx.write_graph6, nx.path_graph(4)), r"line 1: .*graph6"),
        Case("page.txt", "\n<!DOCTYPE html>\n<html>", r"is a web page"),
        Case("lfs.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"Git LFS.*git lfs pull"),
    ]


CASES = [*_matrices(), *_tables(), *_lists(), *_formats()]
