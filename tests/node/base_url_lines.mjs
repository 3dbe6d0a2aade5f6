// Runs the Node lines of docs/how-to/provider-apis.md, each with a streamed call. sdk_lines.py lists the lines.
//
// Reads a JSON array of {name, code, model}. Writes one line of JSON for each text piece as it arrives, {name, piece}. At the end of each
// line of code writes {name, raised}: null, or the error.
//
// Node does not read a proxy for TLS from its environment. INTERNET is the local port to which every TLS connection goes.
import { syncBuiltinESMExports } from "node:module";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import tls from "node:tls";
import Anthropic from "@anthropic-ai/sdk";
import { AnthropicVertex } from "@anthropic-ai/vertex-sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { BedrockRuntimeClient, ConverseStreamCommand } from "@aws-sdk/client-bedrock-runtime";
import Cerebras from "@cerebras/cerebras_cloud_sdk";
import { GoogleGenAI } from "@google/genai";
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { Mistral } from "@mistralai/mistralai";
import { OpenRouter } from "@openrouter/sdk";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { streamText } from "ai";
import { CohereClientV2 } from "cohere-ai";
import Groq from "groq-sdk";
import { HttpProxyAgent } from "http-proxy-agent";
import { Ollama } from "ollama";
import OpenAI, { AzureOpenAI } from "openai";
import Together from "together-ai";

const connect = tls.connect;
tls.connect = (options, ...more) =>
  connect({ ...options, host: "127.0.0.1", port: process.env.INTERNET, path: undefined, servername: options.servername ?? options.host }, ...more);
syncBuiltinESMExports();
// Only pieces may go to stdout.
console.log = console.info = console.debug = console.warn = console.error;

// The names that a line of code may use.
const KNOWN = {
  Anthropic, AnthropicVertex, AzureOpenAI, BedrockRuntimeClient, Cerebras, CohereClientV2, GoogleGenAI, Groq, HttpProxyAgent,
  Mistral, NodeHttpHandler, Ollama, OpenAI, OpenRouter, Together, createAnthropic, createGoogleGenerativeAI, createOpenAI, process,
};

// --- streamed calls --------------------------------------------------------------------------------------------------

const HELLO = "Say hello in three languages.";
const MESSAGES = [{ role: "user", content: HELLO }];

async function* openaiChat(client, model) {
  for await (const chunk of await client.chat.completions.create({ model, messages: MESSAGES, stream: true }))
    yield* chunk.choices.map((choice) => choice.delta?.content);
}

async function* openaiResponses(client, model) {
  for await (const event of await client.responses.create({ model, input: HELLO, stream: true }))
    if (event.type === "response.output_text.delta") yield event.delta;
}

async function* anthropicMessages(client, model) {
  for await (const event of client.messages.stream({ model, max_tokens: 100, messages: MESSAGES }))
    if (event.type === "content_block_delta") yield event.delta.text;
}

async function* gemini(client, model) {
  for await (const chunk of await client.models.generateContentStream({ model, contents: HELLO })) yield chunk.text;
}

async function* mistral(client, model) {
  for await (const event of await client.chat.stream({ model, messages: MESSAGES }))
    yield* event.data.choices.map((choice) => choice.delta.content);
}

async function* cohere(client, model) {
  for await (const event of await client.chatStream({ model, messages: MESSAGES }))
    if (event.type === "content-delta") yield event.delta?.message?.content?.text;
}

async function* ollama(client, model) {
  for await (const part of await client.chat({ model, messages: MESSAGES, stream: true })) yield part.message.content;
}

async function* openrouter(client, model) {
  const asked = { model, messages: MESSAGES, stream: true };
  for await (const chunk of await client.chat.send({ chatRequest: asked }))
    yield* chunk.choices.map((choice) => choice.delta.content);
}

async function* bedrock(client, modelId) {
  const answer = await client.send(new ConverseStreamCommand({ modelId, messages: [{ role: "user", content: [{ text: HELLO }] }] }));
  for await (const event of answer.stream) yield event.contentBlockDelta?.delta?.text;
}

// The Vercel AI SDK: its providers create models.
async function* vercel(model) {
  const { fullStream } = streamText({ model, prompt: HELLO, maxRetries: 0 });
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") yield part.text;
  }
}

async function* langchain(model) {
  for await (const chunk of await model.stream(HELLO)) yield chunk.text;
}

// --- the lines -------------------------------------------------------------------------------------------------------

// By name: the call, and for a line without code a constructor of its client, called as without a proxy.
const LINES = {
  "openai": [openaiChat, () => new OpenAI()],
  "openai: @ai-sdk/openai": [(of, model) => vercel(of.chat(model)), () => createOpenAI()],
  "openai: @langchain/openai": [(of, model) => langchain(new ChatOpenAI({ model })), () => null],
  "openai in code": [openaiResponses],
  "openai, Vercel": [(of, model) => vercel(of.responses(model))],
  "azure": [openaiChat],
  "azure v1": [openaiChat],
  "anthropic": [anthropicMessages, () => new Anthropic()],
  "anthropic: @ai-sdk/anthropic": [(of, model) => vercel(of(model)), () => createAnthropic()],
  "anthropic: @langchain/anthropic": [(of, model) => langchain(new ChatAnthropic({ model })), () => null],
  "anthropic in code": [anthropicMessages],
  "anthropic, Vercel": [(of, model) => vercel(of(model))],
  "gemini": [gemini, () => new GoogleGenAI({})],
  "gemini in code": [gemini],
  "gemini, Vercel": [(of, model) => vercel(of(model))],
  "vertex": [gemini],
  "anthropic on vertex": [anthropicMessages],
  "bedrock": [bedrock, () => new BedrockRuntimeClient({ requestHandler: new NodeHttpHandler() })],
  "mistral": [mistral],
  "cohere in code": [cohere],
  "groq": [openaiChat, () => new Groq()],
  "groq in code": [openaiChat],
  "cerebras": [openaiChat, () => new Cerebras({ warmTCPConnection: false })],
  "deepseek": [openaiChat],
  "openrouter": [openrouter, () => new OpenRouter({ apiKey: process.env.OPENROUTER_API_KEY })],
  "openrouter in code": [openrouter],
  "xai": [openaiChat],
  "together in code": [openaiChat],
  "fireworks": [openaiChat],
  "ollama in code": [ollama],
};

function made(name, code) {
  if (!code) return LINES[name][1]();
  // The code block assigns its result to a constant: a client, or a provider of the Vercel AI SDK.
  const [, variable] = /^const (\w+) =/m.exec(code);
  return new Function(...Object.keys(KNOWN), `${code}\nreturn ${variable};`)(...Object.values(KNOWN));
}

// Limit for one line, in milliseconds. Reached only on failure.
const LINE_TIMEOUT = 40_000;

async function run({ name, code, model }) {
  const report = (fields) => process.stdout.write(`${JSON.stringify({ name, ...fields })}\n`);
  try {
    for await (const piece of LINES[name][0](made(name, code), model)) if (piece) report({ piece });
    return report({ raised: null });
  } catch (error) {
    return report({ raised: `${error?.stack ?? error} ${error?.cause ?? ""}` });
  }
}

for (const line of JSON.parse(await text(process.stdin)))
  if (await Promise.race([run(line), setTimeout(LINE_TIMEOUT, "late")]) === "late")
    process.stdout.write(`${JSON.stringify({ name: line.name, raised: "the line has not ended within the time limit" })}\n`);
// Open connections and timers of clients would keep the process running.
process.exit(0);
