import json

from holdfast.config import Settings
from holdfast.server.requests import read_run
from holdfast.server.service import Service
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import ScriptedModel, Silence
from holdfast.testing.stage import stage


class Looked(MemoryStore):
    """Counts how often it is looked who waits, and whose turn it is in a session."""

    queues = fronts = 0

    async def queue(self):
        self.queues += 1
        return await super().queue()

    async def session(self, session_id):
        self.fronts += 1
        return await super().session(session_id)


async def submit(service, **fields):
    asked = read_run(json.dumps({"input": "hello", **fields}).encode())
    return (await service.take_in(asked, principal="ada")).run_id


async def test_for_a_list_of_runs_it_is_looked_once_who_waits_and_for_whom(tmp_path):
    store = Looked()
    async with stage({"demo": ScriptedModel([Silence()])}, store=store, capacity=1) as play:
        service = Service(play.runs, play.means, Settings(tmp_path), sessions=play.sessions)
        front = await submit(service, session_id="s")
        await service.status(front, wait=1)
        queued = [await submit(service) for _ in range(3)]
        behind = [await submit(service, session_id="s") for _ in range(3)]
        store.queues = store.fronts = 0
        page = await service.list({})
    told = {status.run_id: status for status in page.data}
    assert {told[run_id].place for run_id in queued} == {1, 2, 3}
    assert [told[run_id].behind.run_id for run_id in behind] == [front] * 3
    assert (store.queues, store.fronts) == (1, 1)
