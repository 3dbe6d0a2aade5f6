"""Calls of an engine through the official clients, and what each client receives: tokens, text, times.

A call is a function that takes headers and yields the objects of the response as dictionaries: the events of a stream, or the whole response.
"""
import dataclasses
import json
import time

import anthropic
import httpx
import openai

LIMIT = 120


@dataclasses.dataclass
class Seen:
    """What the client received in one call."""

    status: int = 200
    # Error that the client raised, by the name of its class.
    error: str = ""
    # Reports of usage. llama.cpp reports each choice on its own.
    usages: list = dataclasses.field(default_factory=list)
    # Generated text, by choice and kind.
    texts: dict = dataclasses.field(default_factory=dict)
    finish: set = dataclasses.field(default_factory=set)
    timings: dict = dataclasses.field(default_factory=dict)
    # Seconds from the call to the first text, the last text and the end.
    first: float | None = None
    last: float | None = None
    end: float = 0.0

    def usage(self, prompts=1):
        """Returns the usage of the whole response. Each report repeats the tokens of its prompt."""
        sums = {kind: sum(usage[kind] for usage in self.usages if kind in usage) for usage in self.usages for kind in usage}
        return {kind: value if kind == "output" else value * prompts // len(self.usages) for kind, value in sums.items()}

    def text(self):
        return "".join(self.texts.values())


def observe(call, headers):
    """Makes the call and returns what the client received."""
    seen, began = Seen(), time.perf_counter()
    try:
        for event in call(headers):
            now = time.perf_counter() - began
            if read(seen, event):
                seen.first = now if seen.first is None else seen.first
                seen.last = now
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        seen.status, seen.error = error.status_code, type(error).__name__
    except httpx.HTTPStatusError as error:
        seen.status, seen.error = error.response.status_code, type(error).__name__
    except (openai.APIError, anthropic.APIError, httpx.HTTPError, json.JSONDecodeError) as error:
        seen.error = type(error).__name__
    seen.end = time.perf_counter() - began
    return seen


def read(seen, event):
    """Adds one object to `seen`. Returns whether it has generated text."""
    before = len(seen.text())
    for part in event if isinstance(event, list) else [event]:
        read_texts(seen, part)
        response = part.get("response") or {}
        seen.timings = part.get("timings") or response.get("timings") or seen.timings
        usage = part.get("usage") or response.get("usage") or (part.get("message") or {}).get("usage")
        if "tokens_predicted" in part and part.get("stop"):
            usage = {"prompt_tokens": part["tokens_evaluated"], "completion_tokens": part["tokens_predicted"],
                     "prompt_tokens_details": {"cached_tokens": part["timings"]["cache_n"]}}
        if usage and part.get("type") == "message_delta":
            seen.usages[-1].update(normal(usage))
        elif usage:
            seen.usages.append(normal(usage))
    return len(seen.text()) > before


def normal(usage):
    """Returns the usage of any API as input (with cached tokens), output and cached tokens."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens", usage.get("cache_read_input_tokens"))
    given = usage.get("prompt_tokens", usage.get("input_tokens"))
    if given is not None and "prompt_tokens" not in usage and "cache_read_input_tokens" in usage:
        given += usage["cache_read_input_tokens"] or 0
    found = {"input": given, "output": usage.get("completion_tokens", usage.get("output_tokens")), "cached": cached}
    return {key: value for key, value in found.items() if value is not None}


def read_texts(seen, part):
    def add(choice, kind, text):
        if text:
            seen.texts[choice, kind] = seen.texts.get((choice, kind), "") + text

    for choice in part.get("choices") or []:
        index, message = choice.get("index", 0), choice.get("delta") or choice.get("message") or {}
        add(index, "text", choice.get("text"))
        add(index, "text", message.get("content"))
        add(index, "reasoning", message.get("reasoning_content") or message.get("reasoning"))
        for call in message.get("tool_calls") or []:
            add(index, "tool", (call.get("function") or {}).get("name"))
            add(index, "tool", (call.get("function") or {}).get("arguments"))
        seen.finish |= {choice["finish_reason"]} if choice.get("finish_reason") else set()
    add(part.get("index", 0), "text", part.get("content") if isinstance(part.get("content"), str) else None)
    for block in part.get("content") if isinstance(part.get("content"), list) and part.get("type") == "message" else []:
        add(0, "reasoning" if block["type"] == "thinking" else "text", block.get("text") or block.get("thinking"))
    delta = part.get("delta")
    if isinstance(delta, str):
        add(0, "reasoning" if "reasoning" in part["type"] else "tool" if "arguments" in part["type"] else "text", delta)
    elif isinstance(delta, dict):
        add(0, "text", delta.get("text"))
        add(0, "reasoning", delta.get("thinking"))
        add(0, "tool", delta.get("partial_json"))
        seen.finish |= {delta["stop_reason"]} if delta.get("stop_reason") else set()
    for item in part.get("output") or [] if part.get("object") == "response" else []:
        for block in item.get("content") or []:
            add(0, "reasoning" if item["type"] == "reasoning" else "text", block.get("text"))
        add(0, "tool", item.get("arguments"))


class Clients:
    """The official clients, and a plain HTTP client for the engine's own paths, all through one port."""

    def __init__(self, port, model):
        self.base, self.model = f"http://127.0.0.1:{port}", model
        self.openai = openai.OpenAI(base_url=f"{self.base}/v1", api_key="none", max_retries=0, timeout=LIMIT)
        self.anthropic = anthropic.Anthropic(base_url=self.base, api_key="none", max_retries=0, timeout=LIMIT)
        self.http = httpx.Client(base_url=self.base, timeout=LIMIT, limits=httpx.Limits(max_connections=None))

    def chat(self, prompt, stream=True, usage=True, extra=None, **arguments):
        return self.of_openai(self.openai.chat.completions, stream, usage, extra, messages=[{"role": "user", "content": prompt}], **arguments)

    def completions(self, prompt, stream=True, usage=True, extra=None, **arguments):
        return self.of_openai(self.openai.completions, stream, usage, extra, prompt=prompt, **arguments)

    def responses(self, prompt, stream=True, extra=None, **arguments):
        return self.of_openai(self.openai.responses, stream, False, extra, input=prompt, **arguments)

    def of_openai(self, resource, stream, usage, extra, **arguments):
        if stream and usage:
            arguments["stream_options"] = {"include_usage": True}

        def call(headers):
            answer = resource.create(model=self.model, stream=stream, extra_headers=headers, extra_body=extra, **arguments)
            for event in answer if stream else [answer]:
                # llama.cpp begins the stream of two prompts with `data: null`.
                if event is not None:
                    yield event.to_dict()
        return call

    def messages(self, prompt, stream=True, extra=None, **arguments):
        def call(headers):
            answer = self.anthropic.messages.create(
                model=self.model, messages=[{"role": "user", "content": prompt}], stream=stream, extra_headers=headers, extra_body=extra, **arguments)
            for event in answer if stream else [answer]:
                yield event.to_dict()
        return call

    def embeddings(self, texts):
        def call(headers):
            answer = self.openai.embeddings.create(model=self.model, input=texts, extra_headers=headers)
            yield {"usage": answer.usage.to_dict()}
        return call

    def own(self, path, body):
        """An API of the engine's own, with its events if `body` asks for a stream."""
        def call(headers):
            with self.http.stream("POST", path, json=body, headers=headers) as answer:
                if not body.get("stream"):
                    answer.read()
                answer.raise_for_status()
                if not body.get("stream"):
                    yield answer.json()
                    return
                for line in answer.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield json.loads(line[6:])
        return call
