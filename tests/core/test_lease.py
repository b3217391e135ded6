from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.lease import Lease, Tenure, remaining

SECONDS = st.floats(0, 1e9)


def test_a_lease_is_known_by_run_worker_and_epoch():
    assert Lease("run_1", "ada", 2) != Lease("run_1", "ada", 3)
    assert not Lease("run_1", "ada", 2).due


def test_a_tenure_is_renewed_after_a_third_and_over_after_two():
    tenure = Tenure(ttl=9.0, asked=100.0)
    assert tenure.renew_at == 103.0
    assert tenure.over_at == 106.0


@given(ttl=st.floats(0.01, 1e6), asked=SECONDS)
def test_a_tenure_is_over_before_the_store_may_move_on(ttl, asked):
    tenure = Tenure(ttl, asked)
    assert asked <= tenure.renew_at <= tenure.over_at <= asked + ttl


def test_a_wait_that_has_begun_has_less_left():
    assert remaining(100.0, 60.0, now=110.0) == 50.0


def test_a_wait_that_is_over_has_nothing_left():
    assert remaining(100.0, 60.0, now=1000.0) == 0.0


def test_a_clock_set_back_never_draws_a_wait_out():
    assert remaining(100.0, 60.0, now=0.0) == 60.0


@given(since=SECONDS, length=SECONDS, now=SECONDS)
def test_what_is_left_is_between_nothing_and_the_whole(since, length, now):
    assert 0.0 <= remaining(since, length, now=now) <= length
