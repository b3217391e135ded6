import msgspec

from holdfast.cli.row import Row


def test_what_a_server_leaves_out_is_nothing():
    told = b'{"object":"session","session_id":"s","title":"t","created_at":1,"moved_at":2,"new":3}'
    row = msgspec.json.decode(told, type=Row)
    assert (row.session_id, row.current_run_id, row.deleted_at) == ("s", "", None)
