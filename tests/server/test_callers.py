import pytest

from holdfast.server.callers import Callers, stranger


@pytest.mark.parametrize(
    ("client", "proxied", "known"),
    [
        (("192.0.2.7", 40000), False, "192.0.2.7"),
        (("2001:db8::7", 40000), False, "2001:db8::7"),
        (("192.0.2.7", 40000), True, ""),
        (("127.0.0.1", 40000), False, ""),
        (("::ffff:127.0.0.1", 40000), False, ""),
        (("::1", 40000), False, ""),
        (None, False, ""),
    ],
)
def test_only_who_is_elsewhere_is_somebody_in_particular(client, proxied, known):
    assert stranger(client, proxied=proxied) == known


def test_an_address_has_so_many_places_and_gets_back_the_ones_it_leaves():
    callers = Callers(lambda client: client[0], most=2)
    assert [not callers.come(("a", port)) for port in range(3)] == [True, True, False]
    assert not callers.come(("b", 1))
    callers.go(("a", 2))
    assert callers.come(("a", 3))
    for port in range(3):
        callers.go(("a", port))
    assert not callers.come(("a", 4)) and not callers.come(("a", 5)) and callers.come(("a", 6))


def test_nothing_is_counted_for_nobody_in_particular_and_nothing_kept_of_who_has_gone():
    callers = Callers(lambda client: "", most=1)
    assert not any(callers.come(None) for _ in range(5))
    callers.go(None)
    named = Callers(lambda client: client[0])
    for _ in range(2):
        named.come(("a", 1))
    for _ in range(2):
        named.go(("a", 1))
    assert not callers._lines and not named._lines


def test_there_are_so_many_places_for_all_whoever_they_are():
    callers = Callers(lambda client: "", in_all=2)
    assert [callers.come(None) for _ in range(2)] == ["", ""]
    assert callers.come(None) == "the server has as many connections as it may have"
    callers.go(None)
    callers.go(None)
    assert not callers.come(None)
