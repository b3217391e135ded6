from holdfast.engine.means import Means, random_id
from holdfast.stores.memory import MemoryStore


def test_an_id_says_of_what_and_is_never_the_same():
    ids = {random_id("run") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(id.startswith("run_") and len(id) == 4 + 32 for id in ids)


def test_a_worker_has_a_clock_and_ids_without_being_given_any():
    means = Means(store=MemoryStore(), models={})
    assert means.clock() > 1.6e9
    assert means.new_id("apr").startswith("apr_")


def test_a_worker_that_was_told_of_no_secrets_hides_nothing():
    assert not Means(store=MemoryStore(), models={}).secrets
