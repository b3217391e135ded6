from holdfast.core.breaker import FAILURES, REST, SOON, Breaker


def fail(breaker, *, now=0.0):
    breaker.fail(breaker.admit(now=now), now=now)


def broken():
    breaker = Breaker()
    for _ in range(FAILURES):
        fail(breaker)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row():
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        fail(breaker)
    assert breaker.admit(now=0.0).wait == 0.0
    fail(breaker)
    assert breaker.open and breaker.admit(now=10.0).wait == REST - 10.0


def test_a_success_in_between_begins_the_count_anew():
    breaker = Breaker()
    for _ in range(10):
        fail(breaker)
        breaker.succeed()
    assert not breaker.open


def test_after_its_rest_one_call_may_try_and_the_others_wait_for_it():
    breaker = broken()
    assert breaker.admit(now=REST).wait == 0.0
    assert breaker.admit(now=REST).wait == SOON
    breaker.succeed()
    assert breaker.admit(now=REST).wait == 0.0
    assert breaker.admit(now=REST).wait == 0.0


def test_a_try_that_fails_begins_another_rest():
    breaker = broken()
    trial = breaker.admit(now=REST)
    breaker.fail(trial, now=REST + 45.0)
    assert breaker.admit(now=REST + 46.0).wait == REST - 1.0
    assert breaker.admit(now=2 * REST + 45.0).wait == 0.0


def test_a_try_that_is_heard_lets_everyone_in_until_one_more_failure():
    breaker = broken()
    breaker.hear(breaker.admit(now=REST))
    assert not breaker.open
    fail(breaker, now=REST)
    assert breaker.open and breaker.admit(now=REST).wait == REST


def test_being_heard_otherwise_changes_nothing():
    breaker = Breaker()
    early = breaker.admit(now=0.0)
    for _ in range(FAILURES):
        fail(breaker)
    breaker.hear(early)
    assert breaker.open


def test_calls_that_were_under_way_when_it_opened_do_not_make_the_rest_longer():
    breaker, early = Breaker(), Breaker().admit(now=0.0)
    for _ in range(FAILURES):
        fail(breaker)
    breaker.fail(early, now=20.0)
    assert breaker.admit(now=REST).wait == 0.0


def test_nor_do_they_end_another_ones_try():
    breaker = Breaker()
    early, other = breaker.admit(now=0.0), breaker.admit(now=0.0)
    for _ in range(FAILURES):
        fail(breaker)
    breaker.admit(now=REST)
    breaker.leave(early)
    breaker.fail(other, now=REST)
    assert breaker.admit(now=REST).wait == SOON


def test_a_try_that_was_given_up_lets_another_try():
    breaker = broken()
    breaker.leave(breaker.admit(now=REST))
    assert breaker.admit(now=REST).wait == 0.0
