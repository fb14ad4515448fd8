// The openai package of npm. It fills one column of the table, as cells.py does
// for Python's clients.

import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

// The package lies where its environment was made, not beside this file.
const require = createRequire(path.join(process.argv[2], "package.json"));
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const table = JSON.parse((await lines.next()).value);
const tell = (line) => fs.writeSync(1, JSON.stringify(line) + "\n");

const MESSAGES = [{ role: "user", content: "Say hello in five words." }];
// At temperature 0 the model does not end this for thousands of tokens.
const STORY = [{ role: "user", content: "Write the numbers from 1 to 2000, one a line." }];
const WEATHER = [{ role: "user", content: "How is the weather in Rome?" }];
const CITY = {
  type: "object", properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"], additionalProperties: false,
};
const TOOL = { type: "function", function: { name: "weather", description: "Tells the weather of a city.", parameters: CITY } };
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PICTURE = [{ role: "user", content: [
  { type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: "data:image/png;base64," + PNG } },
] }];
const MEANWHILE = 8; // more requests than a limited key may have room for again since it was used up
const WIDTH = 576; // of the model's embeddings

class Answered extends Error {} // what should be refused was not

function must(holds, ...got) {
  if (!holds) throw new Error(got.map((g) => JSON.stringify(g)).join(" "));
}

function isCity(text) {
  const document = JSON.parse(text);
  must(Object.keys(document).join() === "city" && ["Paris", "Rome"].includes(document.city), text);
}

async function refused(call, kind, status, code, word = "") {
  let answer;
  try {
    answer = await call();
  } catch (e) {
    must(e instanceof kind && e.status === status && e.code === code && e.message.includes(word), e.constructor.name, e.status, e.code, e.message);
    return "refused";
  }
  throw new Answered("was answered: " + JSON.stringify(answer).slice(0, 500));
}

async function cell(box, feature, fill) {
  const began = Date.now();
  let outcome, detail = "";
  try {
    outcome = (await fill()) || "ok";
  } catch (e) {
    [outcome, detail] = ["failed", `${e.constructor.name}: ${e.message} ${e.cause ?? ""}`.slice(0, 1000)];
  }
  tell({ box, feature, outcome, detail, seconds: (Date.now() - began) / 1000 });
}

function client(address, apiKey = table.key, maxRetries = 0) {
  return new OpenAI({ baseURL: address + "/v1", apiKey, maxRetries, timeout: 120_000 });
}

function features(box, address) {
  const c = client(address);
  const common = { model: table.model, temperature: 0, max_tokens: 12, messages: MESSAGES };
  const chat = (more = {}, at = c) => at.chat.completions.create({ ...common, ...more });
  const called = { messages: WEATHER, tools: [TOOL], max_tokens: 60 };
  const denied = (key, kind, status, code) => () => refused(() => chat({}, client(address, key)), kind, status, code);

  async function stream(more = {}) {
    const parts = [], usages = [];
    for await (const chunk of await chat({ stream: true, ...more })) {
      if (chunk.usage) usages.push(chunk.usage);
      for (const choice of chunk.choices) if (choice.delta.content) parts.push(choice.delta.content);
    }
    must(parts.length > 1, parts);
    return usages;
  }

  function isCall(choice) {
    must(choice.message.tool_calls.length === 1 && choice.finish_reason === "tool_calls", choice);
    const call = choice.message.tool_calls[0];
    must(call.id && call.function.name === "weather", call);
    isCity(call.function.arguments);
  }

  async function embeddings(more = {}) {
    // By itself this client asks for base64.
    const { data } = await c.embeddings.create({ model: table.model, input: ["a cat", "a dog", "a cat"], ...more });
    const [a, b, again] = data.map((d) => Array.from(d.embedding));
    must(a.length === WIDTH && typeof a[0] === "number", a.length);
    must(a.join() === again.join() && a.join() !== b.join(), "embeddings");
  }

  const respond = (more = {}) => c.responses.create({ model: table.model, input: "Say hello in five words.", max_output_tokens: 12, temperature: 0, ...more });

  return {
    chat: async () => {
      const answer = await chat();
      must(answer.choices[0].message.content && answer.usage.completion_tokens > 1, answer);
    },
    stream: async () => {
      const usages = await stream();
      must(usages.length === 0, usages);
    },
    "stream+usage": async () => {
      const usages = await stream({ stream_options: { include_usage: true } });
      must(usages.length === 1 && usages[0].completion_tokens > 1, usages);
    },
    "tools-auto": () => refused(() => chat(called), OpenAI.BadRequestError, 400, "unsupported_by_model", "tools"),
    "tool-required": async () => isCall((await chat({ ...called, tool_choice: "required" })).choices[0]),
    "tool-stream": async () => {
      const s = c.chat.completions.stream({ ...common, ...called, tool_choice: "required" });
      isCall((await s.finalChatCompletion()).choices[0]);
    },
    schema: async () => {
      const answer = await chat({ messages: WEATHER, max_tokens: 60, response_format: {
        type: "json_schema", json_schema: { name: "city", strict: true, schema: CITY } } });
      isCity(answer.choices[0].message.content);
    },
    vision: () => refused(() => chat({ messages: PICTURE }), OpenAI.BadRequestError, 400, "unsupported_by_model", "images"),
    embeddings: () => embeddings(),
    "embeddings-float": () => embeddings({ encoding_format: "float" }),
    responses: async () => {
      const answer = await respond();
      must(answer.output_text && answer.usage.output_tokens > 1, answer);
    },
    "responses-stream": async () => {
      let text = "", last = "";
      for await (const event of await respond({ stream: true })) {
        if (event.type === "response.output_text.delta") text += event.delta;
        last = event.type;
      }
      must(text && ["response.completed", "response.incomplete"].includes(last), text, last);
    },
    "responses-helper": async () => {
      // It wants an answer that ends by itself.
      const s = c.responses.stream({ model: table.model, input: "What is the capital of France? Answer with one word.", temperature: 0 });
      must((await s.finalResponse()).output_text, "no text");
    },
    "responses-schema": async () => {
      const answer = await respond({ input: WEATHER, max_output_tokens: 60, text: {
        format: { type: "json_schema", name: "city", strict: true, schema: CITY } } });
      isCity(answer.output_text);
    },
    "responses-stored": async () => {
      const first = await respond();
      const other = client(Object.entries(table.boxes).find(([name]) => name !== box)[1]);
      must((await other.responses.retrieve(first.id)).output_text === first.output_text, first);
      const second = await other.responses.create({
        model: table.model, input: "Say it again.", previous_response_id: first.id, max_output_tokens: 12 });
      must(second.output_text && second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, first, second);
      await other.responses.delete(first.id);
      await refused(() => c.responses.retrieve(first.id), OpenAI.NotFoundError, 404, "response_not_found");
    },
    models: async () => {
      const ids = [];
      for await (const model of c.models.list()) ids.push(model.id);
      must(ids.join() === table.model, ids);
    },
    model: async () => must((await c.models.retrieve(table.model)).id === table.model, "model"),
    cancel: async () => {
      const s = await chat({ stream: true, messages: STORY, max_tokens: 3000 });
      let parts = 0;
      for await (const _ of s) if (++parts === 5) break; // leaving the loop closes the stream
      tell({ ask: "idle", box });
      const answer = (await lines.next()).value;
      must(answer === "idle", answer);
    },
    401: denied(table.wrong, OpenAI.AuthenticationError, 401, "invalid_api_key"),
    403: denied(table.narrow, OpenAI.PermissionDeniedError, 403, "model_not_allowed"),
    404: () => refused(() => chat({ model: "no-such-model" }), OpenAI.NotFoundError, 404, "model_not_found", table.model),
    "too-long": () => refused(() => chat({ messages: [{ role: "user", content: "word ".repeat(6000) }] }), OpenAI.BadRequestError, 400, "context_length_exceeded"),
    413: () => refused(() => chat({ messages: [{ role: "user", content: "x".repeat(table.large) }] }), OpenAI.APIError, 413, "request_too_large"),
  };
}

// atLimit has the limited key refused, and waits for the next success, beside the
// rest: it takes up to a minute. The lab uses the key up before.
async function atLimit() {
  const once = (retries = 0) => client(table.boxes[table.home], table.limited, retries)
    .chat.completions.create({ model: table.model, messages: MESSAGES, max_tokens: 1 });
  const refuse = () => refused(once, OpenAI.RateLimitError, 429, "rate_limit_exceeded", "try again in");
  // Earlier in a minute, Retry-After can be longer than the 60 s up to which SDKs
  // obey it.
  while ((Date.now() / 1000) % 60 < 16) await new Promise((done) => setTimeout(done, 500));
  await cell(table.home, "429", async () => {
    for (let n = 0; n < MEANWHILE; n++) {
      try {
        return await refuse();
      } catch (e) {
        if (!(e instanceof Answered)) throw e;
      }
    }
    throw new Error("a key that is used up was answered");
  });
  await cell(table.home, "retry", async () => must((await once(2)).choices.length === 1, "no answer"));
}

const side = atLimit();
for (const [box, address] of Object.entries(table.boxes))
  for (const [feature, fill] of Object.entries(features(box, address))) await cell(box, feature, fill);
tell({ filled: true });
await side;
process.exit(0);
