"""The list of mutations keeps up with the code that it changes."""

from tests.mutants import LIKELY
from tests.mutations import MUTATIONS
from tests.support.processes import ROOT


def test_every_mutation_changes_one_place():
    for mutation in MUTATIONS:
        assert (ROOT / mutation.file).read_text().count(mutation.pattern) == 1, mutation
        assert mutation.replacement != mutation.pattern


def test_mutations_are_many_and_each_is_said_once():
    descriptions = [mutation.breaks for mutation in MUTATIONS]
    assert len(descriptions) >= 60
    assert len(set(descriptions)) == len(descriptions)


def test_every_mutated_file_has_tests_that_are_likely_to_see_it():
    assert set(LIKELY) == {mutation.file for mutation in MUTATIONS}
    assert [name for names in LIKELY.values() for name in names if not (ROOT / f"tests/test_{name}.py").exists()] == []
