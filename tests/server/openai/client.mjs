// The official client for node against a server: each thing once, and what came of it as JSON.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const found = {};
const script = (...turns) => JSON.stringify(turns);
const asked = (...turns) => [{ role: "user", content: script(...turns) }];
const caught = async (work) => {
  try {
    await work();
  } catch (error) {
    return [error.constructor.name, error.status, error.code];
  }
};

const chat = await client.chat.completions.create({ model: "demo", messages: asked(["Hel", "lo!"]) });
found.chat = chat.choices[0].message.content;

found.streamed = "";
const chunks = { model: "demo", messages: asked(["Hel", "lo!"]), stream: true };
for await (const chunk of await client.chat.completions.create(chunks)) {
  found.streamed += chunk.choices[0]?.delta?.content ?? "";
}

const format = { type: "json_schema", name: "sum", strict: true, schema: { type: "object" } };
const parsed = await client.responses.parse({
  model: "demo",
  input: asked(['{"sum"', ": 2}"]),
  text: { format },
});
found.parsed = JSON.parse(parsed.output_text);

const begun = { model: "demo", input: script(["Hel", { wait: 0.2 }, "lo!"]), background: true };
let id, seen;
for await (const event of await client.responses.create({ ...begun, stream: true })) {
  seen = event.sequence_number;
  id ??= event.response?.id;
  if (event.type === "response.output_text.delta") break;
}
found.rest = "";
const resumed = { stream: true, starting_after: seen };
for await (const event of await client.responses.retrieve(id, resumed)) {
  if (event.type === "response.output_text.delta") found.rest += event.delta;
}
found.whole = (await client.responses.retrieve(id)).output_text;

const followed = client.responses.stream({ response_id: id, starting_after: seen });
found.followed = (await followed.finalResponse()).output_text;

const long = await client.responses.create({ ...begun, input: script([{ wait: 600 }]) });
found.cancelled = (await client.responses.cancel(long.id)).status;

found.items = [];
for await (const item of client.responses.inputItems.list(id)) found.items.push(item.role);

found.refused = await caught(() => client.chat.completions.create({ ...chunks, n: 2 }));
found.missing = await caught(() => client.responses.retrieve("resp_none"));
const stranger = new OpenAI({ apiKey: "nonsense", maxRetries: 0 });
found.stranger = await caught(() => stranger.models.list());

console.log(JSON.stringify(found));
