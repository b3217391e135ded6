from holdfast.server.cors import PREFLIGHT, SHARED


def test_what_clients_send_is_taken():
    taken = dict(PREFLIGHT)[b"access-control-allow-headers"].split(b", ")
    for name in (b"Authorization", b"Last-Event-ID", b"X-OpenWebUI-Chat-Id", b"X-Stainless-lang"):
        assert name in taken
    assert len(set(taken)) == len(taken)


def test_the_id_of_a_run_can_be_seen():
    assert b"X-Run-Id" in dict(SHARED)[b"access-control-expose-headers"]
