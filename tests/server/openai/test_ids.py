import pytest

from holdfast.server.openai.ids import bare, completion_id, response_id, response_of, run_id
from holdfast.server.problems import Problem


def test_a_response_is_its_run_under_another_name():
    assert response_id("run_1f") == "resp_1f"
    assert run_id("resp_1f") == "run_1f"
    assert bare("run_1f") == "1f"


def test_a_completion_names_its_run():
    assert completion_id("run_1f") == "chatcmpl-run_1f"


@pytest.mark.parametrize("id", ["run_1f", "1f", "", "RESP_1f"])
def test_what_is_no_id_of_a_response_is_not_found(id):
    with pytest.raises(Problem) as caught:
        run_id(id)
    assert (caught.value.status, caught.value.code) == (404, "response_not_found")


def test_an_id_longer_than_any_is_not_found_and_not_said_again_in_full():
    with pytest.raises(Problem) as caught:
        run_id("resp_" + "0" * 60_000)
    assert (caught.value.status, len(str(caught.value)) < 300) == (404, True)


def test_a_message_names_its_response():
    assert response_of("msg_1f_12") == "resp_1f"
    assert response_of("msg_1") == response_of("msg_") == "resp_"
