from holdfast.core.breaker import FAILURES, REST, SOON, Breaker


def broken(now=0.0):
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.fail(now=now)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row():
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        breaker.fail(now=0.0)
    assert breaker.admit(now=0.0) == 0.0
    breaker.fail(now=0.0)
    assert breaker.open and breaker.admit(now=10.0) == REST - 10.0


def test_a_success_in_between_begins_the_count_anew():
    breaker = Breaker()
    for _ in range(10):
        breaker.fail(now=0.0)
        breaker.succeed()
    assert not breaker.open


def test_after_its_rest_one_call_may_try_and_the_others_wait_for_it():
    breaker = broken()
    assert breaker.admit(now=REST) == 0.0
    assert breaker.admit(now=REST) == SOON
    breaker.succeed()
    assert breaker.admit(now=REST) == 0.0
    assert breaker.admit(now=REST) == 0.0


def test_a_try_that_fails_begins_another_rest():
    breaker = broken()
    breaker.admit(now=REST)
    breaker.fail(now=REST + 45.0)
    assert breaker.admit(now=REST + 46.0) == REST - 1.0
    assert breaker.admit(now=2 * REST + 45.0) == 0.0


def test_calls_that_were_under_way_when_it_opened_do_not_make_the_rest_longer():
    breaker = broken()
    breaker.fail(now=20.0)
    assert breaker.admit(now=REST) == 0.0


def test_a_try_that_was_given_up_lets_another_try():
    breaker = broken()
    breaker.admit(now=REST)
    breaker.leave()
    assert breaker.admit(now=REST) == 0.0
