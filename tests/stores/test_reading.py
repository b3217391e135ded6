from holdfast.stores.reading import link


def test_a_sum_is_made_of_all_that_must_not_change():
    sums = {
        link(b"", 1, 1.0, b"body"),
        link(b"x", 1, 1.0, b"body"),
        link(b"", 2, 1.0, b"body"),
        link(b"", 1, 2.0, b"body"),
        link(b"", 1, 1.0, b"Body"),
    }
    assert len(sums) == 5
    assert link(b"", 1, 1.0, b"body") in sums
