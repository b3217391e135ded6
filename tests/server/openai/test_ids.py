import pytest

from holdfast.server.openai.ids import bare, completion_id, response_id, run_id
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
