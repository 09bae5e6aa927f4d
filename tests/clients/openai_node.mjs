// Uses corelm through OpenAI's client for Node.js: node openai_node.mjs URL MODEL
// Prints a line for each thing that works, and fails at the first that does not.

import assert from "node:assert/strict";
import OpenAI, { NotFoundError } from "openai";
import { VERSION } from "openai/version";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const weather = {
  name: "get_weather",
  description: "The weather in a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
    required: ["city"],
    additionalProperties: false,
  },
};
const settings = { model, temperature: 0, max_tokens: 16 };

async function models() {
  const names = (await client.models.list()).data.map((entry) => entry.id);
  assert(names.includes(model));
}

async function chat() {
  const reply = await client.chat.completions.create({ ...settings, messages });
  assert(reply.choices[0].message.content.length > 0);
  assert.equal(reply.usage.completion_tokens <= 16, true);
  return reply.choices[0].message.content;
}

async function stream() {
  const whole = await chat();
  const chunks = await client.chat.completions.create({
    ...settings,
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of chunks) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole);
  assert(usage.completion_tokens > 0);
}

async function completions() {
  const reply = await client.completions.create({ ...settings, prompt: ["Once upon", "In the"], n: 1 });
  assert.deepEqual(reply.choices.map((choice) => choice.index), [0, 1]);
}

async function tools() {
  const runner = client.chat.completions.stream({
    ...settings,
    max_tokens: 64,
    messages: [{ role: "user", content: "What is the weather in Rome?" }],
    tools: [{ type: "function", function: weather }],
    tool_choice: "required",
  });
  const { message, finish_reason: reason } = (await runner.finalChatCompletion()).choices[0];
  assert.equal(reason, "tool_calls");
  const [call] = message.tool_calls;
  assert.equal(call.function.name, weather.name);
  assert(weather.parameters.properties.city.enum.includes(JSON.parse(call.function.arguments).city));
}

async function schema() {
  const reply = await client.chat.completions.create({
    ...settings,
    max_tokens: 64,
    messages,
    response_format: { type: "json_schema", json_schema: { name: "city", strict: true, schema: weather.parameters } },
  });
  assert(weather.parameters.properties.city.enum.includes(JSON.parse(reply.choices[0].message.content).city));
}

async function responses() {
  const asked = { model, temperature: 0, max_output_tokens: 16, input: "Say hello." };
  const first = await client.responses.create(asked);
  assert(first.output_text.length > 0);
  let text = "";
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    text += event.type === "response.output_text.delta" ? event.delta : "";
  }
  assert.equal(text, first.output_text);
  const second = await client.responses.create({ ...asked, input: "And again.", previous_response_id: first.id });
  assert.equal(second.previous_response_id, first.id);
}

async function embeddings() {
  const { data } = await client.embeddings.create({ model, input: ["one", "two"] });
  assert.equal(data.length, 2);
  assert(Math.abs(Math.hypot(...data[0].embedding) - 1) < 1e-3);
}

async function errors() {
  await assert.rejects(client.chat.completions.create({ ...settings, model: "unknown", messages }), NotFoundError);
}

async function aborting() {
  const chunks = await client.chat.completions.create({ ...settings, max_tokens: 2000, messages, stream: true });
  for await (const chunk of chunks) {
    assert(chunk.id);
    chunks.controller.abort();
  }
}

console.log(`openai ${VERSION}, node ${process.version}`);
for (const part of [models, chat, stream, completions, tools, schema, responses, embeddings, errors, aborting]) {
  await part();
  console.log(`ok ${part.name}`);
}
