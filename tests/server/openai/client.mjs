// The official client for node against a server. Without words: each thing once, and what came of it as
// JSON. With `begin`, a response in the background, or with `resume` the rest of one: a line an event.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const script = (...turns) => JSON.stringify(turns);
const asked = (...turns) => [{ role: "user", content: script(...turns) }];
const caught = async (work) => {
  try {
    await work();
  } catch (error) {
    return [error.constructor.name, error.status, error.code];
  }
};

const tell = async (events) => {
  for await (const event of await events) {
    const { sequence_number, response, item_id } = event;
    const text = event.type === "response.output_text.delta" ? event.delta : "";
    console.log(JSON.stringify([sequence_number, text, response?.id ?? item_id ?? ""]));
  }
};

const everything = async () => {
  const found = {};

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
};

const [what, ...words] = process.argv.slice(2);
if (what === "begin") {
  const begun = { model: "demo", input: words[0], background: true, stream: true };
  await tell(client.responses.create(begun));
} else if (what === "resume") {
  const resumed = { stream: true, starting_after: Number(words[1]) };
  await tell(client.responses.retrieve(words[0], resumed));
} else {
  await everything();
}
