import pytest

from holdfast.errors import NotFound, StoreUnavailable
from holdfast.server.problems import Problem
from holdfast.server.routing import asking, refusals


def test_every_route_says_what_any_may_be_refused_with_and_what_this_one_may():
    assert refusals(409).keys() - refusals().keys() == {409}
    assert refusals().keys() >= {400, 401, 500, 503, 507}


def test_an_error_has_the_name_that_who_asks_knows_it_by():
    with pytest.raises(Problem) as caught, asking("session"):
        raise StoreUnavailable("gone")
    assert (caught.value.status, caught.value.code) == (503, "session_db_unavailable")
    with pytest.raises(Problem) as caught, asking("session"):
        raise NotFound("session", "s")
    assert (caught.value.status, caught.value.code) == (404, "session_not_found")
