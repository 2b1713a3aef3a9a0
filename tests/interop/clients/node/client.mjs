// What OpenAI's client for Node finds at an address, and at that of a model that calls tools, as one line of JSON:
// `node client.mjs http://127.0.0.1:8000/v1 http://127.0.0.1:8001/v1`
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const completion = { model: "small", prompt: "the sea", max_tokens: 12, temperature: 0.8, seed: 3 };
const chat = {
  model: "small",
  messages: [
    { role: "system", content: "sail" },
    { role: "user", content: "the wide sea" },
  ],
  max_completion_tokens: 10,
  temperature: 0.9,
  seed: 5,
};

async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    if (error instanceof OpenAI.APIError) return [error.status, error.param ?? null, error.code ?? null];
    throw error;
  }
  return null;
}

const found = {};
found.models = (await client.models.list()).data.map((model) => model.id);
found.model = (await client.models.retrieve("small")).owned_by;

const whole = await client.completions.create({ ...completion, n: 2, logprobs: 1 });
found.completion = whole.choices.map((choice) => [choice.text, choice.finish_reason]);
found.logprobs = whole.choices[0].logprobs.token_logprobs;
found.usage = [whole.usage.prompt_tokens, whole.usage.completion_tokens];

let text = "";
for await (const part of await client.completions.create({ ...completion, stream: true })) {
  text += part.choices[0]?.text ?? "";
}
found.completion_stream = text;

const answer = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
found.chat = [answer.choices[0].message.content, answer.choices[0].finish_reason];
found.top = answer.choices[0].logprobs.content[0].top_logprobs.map((one) => one.logprob);

const stream = await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } });
let [content, finish, total] = ["", null, 0];
for await (const part of stream) {
  content += part.choices[0]?.delta?.content ?? "";
  finish = part.choices[0]?.finish_reason ?? finish;
  total = part.usage?.total_tokens ?? total;
}
found.chat_stream = [content, finish, total];

// It asks for base64 unless told otherwise.
const inputs = { model: "small", input: ["the sea", "a ship sails the wide sea"] };
const vectors = await client.embeddings.create(inputs);
const numbers = await client.embeddings.create({ ...inputs, encoding_format: "float" });
found.embeddings = [vectors, numbers].map((one) => one.data.map((each) => each.embedding));
found.embedded = [vectors.usage.prompt_tokens, numbers.usage.total_tokens];

const caller = new OpenAI({ baseURL: process.argv[3], apiKey: "none", maxRetries: 0 });
const sail = { type: "object", properties: { to: { type: "string" } }, required: ["to"] };
const called = {
  model: "small",
  input: [{ role: "user", content: "<two>" }],
  tools: [
    { type: "function", name: "sail", parameters: sail, strict: false },
    { type: "function", name: "stop", parameters: { type: "object" }, strict: false },
  ],
  temperature: 0,
};
const response = await caller.responses.create(called);
const isCall = (item) => item.type === "function_call";
found.called = response.output.map((item) => (isCall(item) ? [item.name, item.arguments] : item.content[0].text));

const written = [];
let last = null;
for await (const event of await caller.responses.create({ ...called, stream: true })) {
  if (event.type === "response.output_item.added" && isCall(event.item)) written.push("");
  if (event.type === "response.function_call_arguments.delta") written[written.length - 1] += event.delta;
  if (event.type === "response.completed") last = event.response;
}
found.called_stream = [written, last.output.length, last.usage.total_tokens];

const results = response.output.filter(isCall).map((item) => {
  return { type: "function_call_output", call_id: item.call_id, output: "done" };
});
const talk = [...called.input, ...response.output, ...results, { role: "user", content: "<none>" }];
const after = await caller.responses.create({ ...called, input: talk });
found.after_calls = [after.output_text, after.usage.input_tokens];

found.refused_further = [
  await refusal(client.embeddings.create({ ...inputs, dimensions: 3 })),
  await refusal(caller.responses.create({ ...called, tools: [{ type: "web_search" }] })),
];
found.refused = [
  await refusal(client.completions.create({ ...completion, temperature: 5 })),
  await refusal(client.chat.completions.create({ ...chat, messages: [] })),
  await refusal(client.chat.completions.create({ ...chat, model: "other" })),
];
console.log(JSON.stringify(found));
