from holdfast.server import backoff
from holdfast.server.backoff import MOST, WITHIN, Backoff


class Clock:
    at = 100.0

    def __call__(self):
        return self.at


def test_after_so_many_wrong_keys_nobody_there_is_listened_to_until_a_while_has_passed():
    clock = Clock()
    failures = Backoff(clock)
    for _ in range(MOST):
        assert failures.wait("a") == 0.0
        failures.note("a")
        clock.at += 1
    assert failures.wait("a") == WITHIN - MOST
    assert failures.wait("b") == 0.0
    clock.at += WITHIN - MOST
    # And then again, for as long.
    for _ in range(MOST):
        assert failures.wait("a") == 0.0
        failures.note("a")
    assert failures.wait("a") == WITHIN


def test_wrong_keys_now_and_then_are_forgotten():
    clock = Clock()
    failures = Backoff(clock)
    for _ in range(5 * MOST):
        assert failures.wait("a") == 0.0
        failures.note("a")
        clock.at += WITHIN / 5


def test_not_everyone_is_remembered(monkeypatch):
    monkeypatch.setattr(backoff, "REMEMBERED", 2)
    failures = Backoff(Clock())
    for address in ("a",) * MOST + ("b", "c"):
        failures.note(address)
    assert failures.wait("a") == 0.0
