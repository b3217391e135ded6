from holdfast.testing.scripted import ScriptedModel


async def test_what_may_be_sent_and_what_comes_back_is_described(inside):
    async with inside(ScriptedModel()) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
    chat, respond = paths["/v1/chat/completions"]["post"], paths["/v1/responses"]["post"]
    for operation in (chat, respond, paths["/v1/responses/{id}"]["get"]):
        kinds = operation["responses"]["200"]["content"].keys()
        assert kinds == {"application/json", "text/event-stream"}
    taken = [
        operation["requestBody"]["content"]["application/json"]["schema"]
        for operation in (chat, respond)
    ]
    assert [one["required"] for one in taken] == [["messages"], ["input"]]
    assert all("on_disconnect" in one["properties"] for one in taken)
