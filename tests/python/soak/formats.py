"""Responses of nine API formats, and of servers that deviate from them. A seed determines the text, so that backend and client know every byte of a response."""
import binascii
import dataclasses
import json
import random
import struct

# Each word is one token of o200k_base.
WORDS = (" time", " stream", " token", " light", " water", " house", " green", " small", " under", " river", " music", " paper")
PROMPT = "Write about the harbour."


@dataclasses.dataclass
class Response:
    """A complete response: its media type, and the pieces in which the backend writes the body."""

    media: str
    pieces: list


def dumps(value):
    return json.dumps(value, separators=(",", ":"))


def event(value, name=None):
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(value) if not isinstance(value, str) else value}\n\n".encode()


def line(value):
    return dumps(value).encode() + b"\n"


def aws_event(kind, value):
    """Returns a message of `application/vnd.amazon.eventstream`."""
    headers = b""
    for name, text in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
    payload = dumps(value).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


def openai_chat(model, words, prompt):
    def chunk(**fields):
        return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, **fields})

    yield chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    for word in words:
        yield chunk(choices=[{"index": 0, "delta": {"content": word}, "finish_reason": None}])
    yield chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield chunk(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": len(words), "total_tokens": prompt + len(words)})
    yield event("[DONE]")


def openai_completions(model, words, prompt):
    for word in words:
        yield event({"id": "c2", "object": "text_completion", "model": model, "choices": [{"index": 0, "text": word, "finish_reason": None}]})
    yield event({"id": "c2", "object": "text_completion", "model": model, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}],
                 "usage": {"prompt_tokens": prompt, "completion_tokens": len(words), "total_tokens": prompt + len(words)}})
    yield event("[DONE]")


def openai_responses(model, words, prompt):
    def item(kind, number, **fields):
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    response = {"id": "r1", "object": "response", "model": model, "status": "in_progress", "output": []}
    yield item("response.created", 0, response=response)
    for number, word in enumerate(words, 1):
        yield item("response.output_text.delta", number, item_id="m1", output_index=0, content_index=0, delta=word)
    usage = {"input_tokens": prompt, "output_tokens": len(words), "total_tokens": prompt + len(words)}
    yield item("response.completed", len(words) + 1, response={**response, "status": "completed", "usage": usage})


def anthropic(model, words, prompt):
    def item(kind, **fields):
        return event({"type": kind, **fields}, kind)

    yield item("message_start", message={"id": "m1", "type": "message", "role": "assistant", "model": model, "content": [],
                                         "usage": {"input_tokens": prompt, "output_tokens": 1}})
    yield item("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in words:
        yield item("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield item("content_block_stop", index=0)
    yield item("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": len(words)})
    yield item("message_stop")


def gemini(model, words, prompt):
    for number, word in enumerate(words, 1):
        candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": word}]}}
        fields = {"candidates": [candidate], "modelVersion": model}
        if number == len(words):
            candidate["finishReason"] = "STOP"
            fields["usageMetadata"] = {"promptTokenCount": prompt, "candidatesTokenCount": number, "totalTokenCount": prompt + number}
        yield event(fields)


def ollama(model, words, prompt):
    for word in words:
        yield line({"model": model, "message": {"role": "assistant", "content": word}, "done": False})
    yield line({"model": model, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
                "prompt_eval_count": prompt, "eval_count": len(words)})


def cohere(model, words, prompt):
    yield event({"type": "message-start", "id": "m2", "delta": {"message": {"role": "assistant", "content": []}}}, "message-start")
    for word in words:
        yield event({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": word}}}}, "content-delta")
    usage = {"billed_units": {"input_tokens": prompt, "output_tokens": len(words)}, "tokens": {"input_tokens": prompt, "output_tokens": len(words)}}
    yield event({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": usage}}, "message-end")


def bedrock(model, words, prompt):
    yield aws_event("messageStart", {"role": "assistant"})
    for word in words:
        yield aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}})
    yield aws_event("contentBlockStop", {"contentBlockIndex": 0})
    yield aws_event("messageStop", {"stopReason": "end_turn"})
    yield aws_event("metadata", {"usage": {"inputTokens": prompt, "outputTokens": len(words), "totalTokens": prompt + len(words)}})


def whole_json(model, words, prompt):
    yield dumps({"id": "c3", "object": "chat.completion", "model": model,
                 "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(words)}, "finish_reason": "stop"}],
                 "usage": {"prompt_tokens": prompt, "completion_tokens": len(words), "total_tokens": prompt + len(words)}}).encode()


def image(model, words, prompt):
    """The last event contains an image and is larger than the proxy's limit for one event."""
    *events, _ = openai_responses(model, words, prompt)
    yield from events
    result = {"type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo=" * 100_000}
    usage = {"input_tokens": prompt, "output_tokens": len(words), "total_tokens": prompt + len(words)}
    response = {"id": "r1", "object": "response", "model": model, "output": [result], "status": "completed", "usage": usage}
    yield event({"type": "response.completed", "sequence_number": len(words) + 1, "response": response}, "response.completed")


def single_lines(model, words, prompt):
    """Events are separated by one line end instead of two."""
    for piece in openai_chat(model, words, prompt):
        yield piece.removesuffix(b"\n") if b"[DONE]" not in piece else piece


def reasoning(model, words, prompt):
    """Half of the words are reasoning, whose number the usage does not name."""
    for number, word in enumerate(words):
        key = "reasoning_content" if number < len(words) // 2 else "content"
        yield event({"id": "c4", "object": "chat.completion.chunk", "model": model, "choices": [{"index": 0, "delta": {key: word}, "finish_reason": None}]})
    yield event({"id": "c4", "object": "chat.completion.chunk", "model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield event({"id": "c4", "model": model, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": len(words), "total_tokens": prompt + len(words)}})
    yield event("[DONE]")


def odd_types(model, words, prompt):
    """One object instead of a list, a part instead of a text, and numbers as strings and floats."""
    for word in words:
        yield event({"id": 5, "model": model, "choices": {"index": "0", "delta": {"content": [{"type": "text", "text": word}]}, "finish_reason": "null"}})
    usage = {"prompt_tokens": str(prompt), "completion_tokens": float(len(words)), "total_tokens": prompt + len(words)}
    yield event({"id": 5, "model": model, "choices": {"index": 0, "delta": {}, "finish_reason": "stop"}, "usage": usage, "error": {}})
    yield event("[DONE]")


def lm_studio(model, words, prompt):
    yield event({"type": "chat.start", "model_instance_id": model}, "chat.start")
    for word in words:
        yield event({"type": "message.delta", "content": word}, "message.delta")
    stats = {"input_tokens": prompt, "total_output_tokens": len(words), "reasoning_output_tokens": 0}
    result = {"model_instance_id": model, "output": [{"type": "message", "content": "".join(words)}], "stats": stats, "response_id": "r2"}
    yield event({"type": "chat.end", "result": result}, "chat.end")


@dataclasses.dataclass
class Format:
    """An API format. `counted`: the model's tokenizer is known, so that counted tokens equal the words."""

    name: str
    path: str
    model: str
    media: str
    write: callable
    request: dict
    counted: bool = False

    def body(self, model):
        return dumps({key: model if value is MODEL else value for key, value in self.request.items()}).encode()

    def response(self, model, seed):
        random_words = random.Random(seed)
        words = random_words.choices(WORDS, k=random_words.randint(1, 60))
        return Response(self.media, list(self.write(model, words, 5))), len(words)


MODEL = object()
MESSAGES = [{"role": "user", "content": PROMPT}]
SSE, NDJSON, AWS, JSON = "text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream", "application/json"
CHAT = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "messages": MESSAGES}

FORMATS = (
    Format("openai_chat", "/v1/chat/completions", "gpt-4o", SSE, openai_chat, CHAT, True),
    Format("openai_completions", "/v1/completions", "gpt-3.5-turbo-instruct", SSE, openai_completions, {"model": MODEL, "stream": True, "prompt": PROMPT}),
    Format("openai_responses", "/v1/responses", "gpt-4.1", SSE, openai_responses, {"model": MODEL, "stream": True, "input": PROMPT}, True),
    Format("anthropic", "/v1/messages", "claude-sonnet-4", SSE, anthropic, {"model": MODEL, "stream": True, "max_tokens": 100, "messages": MESSAGES}),
    Format("gemini", "/v1beta/models/{model}:streamGenerateContent?alt=sse", "gemini-2.5-flash", SSE, gemini, {"contents": [{"parts": [{"text": PROMPT}]}]}),
    Format("ollama", "/api/chat", "llama3.2", NDJSON, ollama, {"model": MODEL, "messages": MESSAGES}),
    Format("cohere", "/v2/chat", "command-a", SSE, cohere, {"model": MODEL, "stream": True, "messages": MESSAGES}),
    Format("bedrock", "/model/{model}/converse-stream", "amazon.nova-lite", AWS, bedrock, {"messages": [{"role": "user", "content": [{"text": PROMPT}]}]}),
    Format("image", "/v1/responses", "gpt-5", SSE, image, {"model": MODEL, "stream": True, "input": PROMPT}, True),
    Format("single_lines", "/v1/chat/completions", "glm-4.6", SSE, single_lines, CHAT),
    Format("reasoning", "/v1/chat/completions", "qwen3-32b", SSE, reasoning, CHAT),
    Format("odd_types", "/v1/chat/completions", "gpt-4o-2024-11-20", SSE, odd_types, CHAT, True),
    Format("lm_studio", "/api/v1/chat", "gpt-oss-20b", SSE, lm_studio, {"model": MODEL, "stream": True, "input": PROMPT}),
    Format("whole_json", "/v1/chat/completions", "gpt-4o-mini", JSON, whole_json, {"model": MODEL, "messages": MESSAGES}, True),
)
BY_NAME = {one.name: one for one in FORMATS}
