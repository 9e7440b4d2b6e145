import gzip

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from workbench.core.errors import DataError

FAMILY = "ann\tmother of\tbob\n\n# a comment\nbob\tfather of\tcid\nann\tmother of\tdee\n"


def written(folder, text, name="family.tsv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_names_are_numbered_by_first_appearance(tmp_path):
    kg = wb.links.read_knowledge_graph(written(tmp_path, FAMILY))
    assert kg.entity_names == ["ann", "bob", "cid", "dee"] and kg.relation_names == ["mother of", "father of"]
    assert kg.train.tolist() == [[0, 0, 1], [1, 1, 2], [0, 0, 3]]
    assert (len(kg.valid), len(kg.test), kg.name) == (0, 0, "family")
    assert kg.entity("cid") == 2 and kg.relation("father of") == 1


def test_compressed_files_other_separators_and_windows_lines(tmp_path):
    path = tmp_path / "family.csv.gz"
    path.write_bytes(gzip.compress("\ufeffann, mother of, bob\r\nbob,father of,cid\r\n".encode()))
    kg = wb.links.read_knowledge_graph(path, separator=",", name="mine")
    assert kg.entity_names == ["ann", "bob", "cid"] and kg.name == "mine"


def test_held_out_files_use_the_numbers_of_the_training_file(tmp_path):
    train = written(tmp_path, FAMILY)
    test = written(tmp_path, "dee\tmother of\tcid\n", "test.tsv")
    kg = wb.links.read_knowledge_graph(train, test=test)
    assert kg.test.tolist() == [[3, 0, 2]] and not len(kg.valid)
    assert kg.known_tails(3, 0).tolist() == [2]


@pytest.mark.parametrize(
    ("text", "test", "words"),
    [
        ("a\tr\tb\na\tr\n", None, "line 2: 'a\\\\tr' has 2 names"),
        ("a\tr\t\n", None, "line 1.*2 names"),
        ("a\tr\tb\tc\n", None, "line 1.*must have three"),
        ("a\tr\tb\n", "a\tr\tzoe\n", "test.tsv, line 1: no training triple has the entity 'zoe'"),
        ("a\tr\tb\n", "\na\ts\tb\n", "line 2: no training triple has the relation 's'"),
        ("a\tr\tb\n", "a\tr\tb\n", "test.tsv, line 1 is a triple of .*family.tsv, line 1"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, test, words):
    train = written(tmp_path, text)
    with pytest.raises(DataError, match=words):
        wb.links.read_knowledge_graph(train, test=None if test is None else written(tmp_path, test, "test.tsv"))


def test_repeated_triples_are_skipped_with_a_warning(tmp_path):
    path = written(tmp_path, "a\tr\tb\nb\tr\ta\na\tr\tb\n")
    with pytest.warns(UserWarning, match=r"1 triples occur again.*line 3 repeats .*line 1"):
        assert wb.links.read_knowledge_graph(path).train.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_wrong_arguments(tmp_path):
    path = written(tmp_path, FAMILY)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        wb.links.read_knowledge_graph(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match="must be a share"):
        wb.links.read_knowledge_graph(path, held_out=0.6)
    with pytest.raises(ValueError, match="one or the other"):
        wb.links.read_knowledge_graph(path, test=path, held_out=0.1)
    with pytest.raises(ValueError, match="no triple"):
        wb.links.read_knowledge_graph(written(tmp_path, "# nothing\n", "empty.tsv"))
    kg = wb.links.read_knowledge_graph(path)
    with pytest.raises(KeyError, match="similar ones: mother of, father of"):
        kg.relation("mothers of")
    with pytest.raises(KeyError, match="check it"):
        kg.entity("zoe")
    with pytest.raises(ValueError, match="entity_names"):
        wb.load_dataset("synthetic-fb15k-237", scale=0.02).entity("ann")


@given(st.integers(5, 60), st.sampled_from([0.1, 0.25, 0.5]), st.integers(0, 5))
def test_held_out_triples_keep_every_name_in_training(tmp_path_factory, count, share, seed):
    generator = torch.Generator().manual_seed(seed)
    triples = torch.unique(torch.randint(9, (count, 3), generator=generator), dim=0)
    text = "".join("\t".join(map(str, triple)) + "\n" for triple in triples.tolist())
    kg = wb.links.read_knowledge_graph(written(tmp_path_factory.mktemp("kg"), text), held_out=share, seed=seed)
    assert len(kg.train) + len(kg.valid) + len(kg.test) == len(triples)
    assert len(kg.valid) <= int(share * len(triples)) and 0 <= len(kg.valid) - len(kg.test) <= 1
    assert kg.train[:, [0, 2]].unique().numel() == kg.num_entities
    assert kg.train[:, 1].unique().numel() == kg.num_relations
    assert len(torch.unique(torch.cat((kg.train, kg.valid, kg.test)), dim=0)) == len(triples)


def test_as_many_triples_are_held_out_as_asked_and_others_by_another_seed(tmp_path):
    text = "".join(f"{head}\t{relation}\t{tail}\n" for head in range(9) for relation in range(2) for tail in range(9))
    kgs = [wb.links.read_knowledge_graph(written(tmp_path, text), held_out=0.1, seed=seed) for seed in (0, 0, 1)]
    assert [(len(kg.valid), len(kg.test)) for kg in kgs] == [(16, 16)] * 3
    assert torch.equal(kgs[0].test, kgs[1].test) and not torch.equal(kgs[0].test, kgs[2].test)
