import pytest

from holdfast.core.codec import record
from holdfast.core.events import RunCompleted
from holdfast.errors import AlreadyAccepted, KeyReused
from holdfast.ports import Once
from holdfast.stores.memory_runs import KEPT, Requests, Run
from holdfast.testing.contracts import ACCEPTED

ONCE = Once("ada", "key", "abc")


def test_a_request_is_known_for_a_day_by_its_key():
    now = [0.0]
    requests = Requests(lambda: now[0])
    requests.refuse_known(None)
    requests.remember(None, "run_0")
    requests.refuse_known(ONCE)
    requests.remember(ONCE, "run_1")
    with pytest.raises(AlreadyAccepted):
        requests.refuse_known(ONCE)
    with pytest.raises(KeyReused):
        requests.refuse_known(Once("ada", "key", "other"))
    now[0] = KEPT + 1
    assert requests.earlier(ONCE) is None


def test_a_run_has_ended_when_its_last_event_says_so():
    first = record(1, 0.0, ACCEPTED)
    assert not Run([first]).ended
    assert Run([first, record(2, 0.0, RunCompleted())]).ended
