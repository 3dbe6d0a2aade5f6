"""The providers' own clients: how to set their address, and how to make the call of a recorded request.

A call uses the client's own method, and adds the headers of the check in the client's own way. The model and the stream flag always come from
the recorded request. The rest of the body is sent too if the client passes it through; otherwise a greeting replaces it, since only
the response is compared.
"""
import dataclasses
import functools
import json
from typing import Any, Callable

import anthropic
import boto3
import botocore.config
import cohere
import google.genai
import google.oauth2.credentials
import mistralai.client
import ollama
import openai

from recordings import Recording
from rig import WAIT_LIMIT

HELLO = "Say hello in three languages."
KEY = "not-a-key"
MESSAGES = [{"role": "user", "content": HELLO}]


@dataclasses.dataclass(frozen=True)
class Vendor:
    """One client with the calls of each API: `calls[api](client, recording, headers)`."""

    name: str
    calls: dict[str, Callable]
    client: Callable[[str], Any]
    # The content-encoding that the client requests and decodes, if any.
    decodes: str | None = "gzip"
    # Selects the recordings of these APIs that suit this client.
    fits: Callable[[Recording], bool] = lambda recording: True


# --- OpenAI ----------------------------------------------------------------------------------------------------------

def of_openai(method, model=True, streams=False, **needed):
    """Returns a call of OpenAI's or Anthropic's client: required fields as named arguments, the rest of the body unchanged."""
    def call(client, recording, headers):
        arguments = dict(needed, extra_headers=headers, extra_body=recording.body)
        if model:
            arguments["model"] = recording.model
        if streams:
            arguments["stream"] = recording.stream
        return functools.reduce(getattr, method.split("."), client)(**arguments)
    return call


SOUND = ("hello.wav", b"RIFF\x24\x00\x00\x00WAVEfmt ")
OPENAI = {
    "openai.chat": of_openai("chat.completions.create", streams=True, messages=[]),
    "openai.completions": of_openai("completions.create", streams=True, prompt=""),
    "openai.responses": of_openai("responses.create", streams=True),
    "openai.responses.input_tokens": of_openai("responses.input_tokens.count"),
    "openai.embeddings": of_openai("embeddings.create", input=""),
    "openai.moderations": of_openai("moderations.create", input=HELLO),
    "openai.images": of_openai("images.generate", prompt=HELLO),
    "openai.models": of_openai("models.list", model=False),
    "openai.audio.speech": of_openai("audio.speech.create", input=HELLO, voice="alloy"),
    "openai.audio.transcriptions": of_openai("audio.transcriptions.create", file=SOUND),
    "openai.audio.translations": of_openai("audio.translations.create", file=SOUND),
}


def openai_client(kind):
    return lambda address: kind(base_url=f"{address}/v1", api_key=KEY, max_retries=0, timeout=WAIT_LIMIT)


# --- Anthropic, also on Bedrock and Vertex AI ------------------------------------------------------------------------

def anthropic_messages(client, recording, headers):
    resource = client.beta.messages if "beta=true" in recording.query else client.messages
    return resource.create(model=recording.model, max_tokens=100, messages=MESSAGES, stream=recording.stream,
                           extra_body=recording.without("anthropic_version"), extra_headers=headers)


ANTHROPIC = {
    "anthropic.messages": anthropic_messages,
    "anthropic.count_tokens": of_openai("messages.count_tokens", messages=MESSAGES),
}
def is_for_anthropic(recording):
    return recording.truth["inner_format"] == "anthropic" and "messages" in recording.body


ON_BEDROCK = {"bedrock.invoke": anthropic_messages, "bedrock.invoke-with-response-stream": anthropic_messages}
ON_VERTEX = {"vertex.rawPredict(anthropic)": anthropic_messages, "vertex.streamRawPredict(anthropic)": anthropic_messages}


def anthropic_client(kind):
    return lambda address: kind(base_url=address, api_key=KEY, max_retries=0, timeout=WAIT_LIMIT)


def anthropic_on_bedrock(kind):
    return lambda address: kind(base_url=address, api_key=KEY, aws_region="eu-west-1", max_retries=0, timeout=WAIT_LIMIT)


def anthropic_on_vertex(kind):
    return lambda address: kind(base_url=f"{address}/v1", access_token=KEY, region="europe-west1", project_id="example",
                                max_retries=0, timeout=WAIT_LIMIT)


# --- Google ----------------------------------------------------------------------------------------------------------

def of_google(method, contents, **more):
    def call(client, recording, headers):
        options = {"headers": headers, "extra_body": recording.without("model")}
        return functools.reduce(getattr, method.split("."), client)(
            model=recording.model, config={"http_options": options}, **{contents: HELLO}, **more)
    return call


def interaction(client, recording, headers):
    return client.interactions.create(
        model=recording.model, input=HELLO, stream=recording.stream, extra_headers=headers,
        extra_body=recording.without("model", "input", "stream"))


GEMINI = {
    "gemini.generateContent": of_google("models.generate_content", "contents"),
    "gemini.streamGenerateContent": of_google("models.generate_content_stream", "contents"),
    "gemini.countTokens": of_google("models.count_tokens", "contents"),
    "gemini.embeddings": of_google("models.embed_content", "contents"),
    "gemini.interactions": interaction,
}
VERTEX = {
    "vertex.generateContent": GEMINI["gemini.generateContent"],
    "vertex.streamGenerateContent": GEMINI["gemini.streamGenerateContent"],
    "vertex.predict(embeddings)": GEMINI["gemini.embeddings"],
}


def google_options(address):
    return {"base_url": address, "timeout": WAIT_LIMIT * 1000, "retry_options": {"attempts": 1}}


def gemini_client(address):
    return google.genai.Client(api_key=KEY, http_options=google_options(address))


def vertex_client(address):
    return google.genai.Client(
        vertexai=True, project="example", location="europe-west1", http_options=google_options(address),
        credentials=google.oauth2.credentials.Credentials(KEY))


# --- Mistral ---------------------------------------------------------------------------------------------------------

# Limits the length of other providers' streams for Mistral's client: 80 of 82 recordings are shorter, or Mistral's own.
MISTRAL_EVENTS = 50


def of_mistral(method, stream=None, suffix="", **needed):
    """Mistral's client has separate methods for streams and for asynchronous calls."""
    def call(client, recording, headers):
        name = stream if stream and recording.stream else method
        arguments = {key: recording.model if value is None else value for key, value in needed.items()}
        return functools.reduce(getattr, f"{name}{suffix}".split("."), client)(http_headers=headers, **arguments)
    return call


def mistral_calls(suffix):
    return {
        "openai.chat": of_mistral("chat.complete", "chat.stream", suffix, model=None, messages=MESSAGES),
        "openai.models": of_mistral("models.list", suffix=suffix),
        "openai.audio.speech": of_mistral("audio.speech.complete", suffix=suffix, model=None, input=HELLO),
    }


def is_for_mistral(recording):
    """Returns whether to use a stream in OpenAI's format. Long ones only from Mistral: the client creates a class for every event."""
    return recording.truth["provider"] == "mistral" or (recording.truth["n_events"] or 0) <= MISTRAL_EVENTS


def mistral_client(address):
    return mistralai.client.Mistral(api_key=KEY, server_url=address, timeout_ms=WAIT_LIMIT * 1000)


# --- Cohere ----------------------------------------------------------------------------------------------------------

def of_cohere(method, stream=None, model=True, **needed):
    def call(client, recording, headers):
        name = stream if stream and recording.stream else method
        options = {"additional_headers": headers, "max_retries": 0,
                   "additional_body_parameters": recording.without("stream")}
        arguments = dict(needed, model=recording.model) if model else needed
        return functools.reduce(getattr, name.split("."), client)(request_options=options, **arguments)
    return call


COHERE = {
    "cohere.v1.chat": of_cohere("chat", "chat_stream", message=HELLO),
    "cohere.v1.generate": of_cohere("generate", "generate_stream", prompt=HELLO),
    "cohere.v1.embed": of_cohere("embed", texts=[HELLO]),
    "cohere.v2.chat": of_cohere("v2.chat", "v2.chat_stream", messages=MESSAGES),
    "cohere.v2.embed": of_cohere("v2.embed", input_type="search_query", texts=[HELLO]),
    "cohere.v2.rerank": of_cohere("v2.rerank", query=HELLO, documents=["one", "two"]),
}


def cohere_client(kind):
    return lambda address: kind(api_key=KEY, base_url=address, timeout=WAIT_LIMIT)


# --- Ollama ----------------------------------------------------------------------------------------------------------

def of_ollama(method, **needed):
    """Ollama's client takes headers only in its constructor, so each call has its own client."""
    def call(client, recording, headers):
        arguments = dict(needed, stream=recording.stream) if method != "embed" else needed
        return getattr(client(headers=headers), method)(model=recording.model, **arguments)
    return call


OLLAMA = {
    "ollama.chat": of_ollama("chat", messages=MESSAGES),
    "ollama.generate": of_ollama("generate", prompt=HELLO),
    "ollama.embed": of_ollama("embed", input=HELLO),
}


def ollama_client(kind):
    return lambda address: functools.partial(kind, host=address, timeout=WAIT_LIMIT)


# --- boto3 -----------------------------------------------------------------------------------------------------------

class Bedrock:
    """boto3's client. It adds the headers of the call just before signing."""

    def __init__(self, address):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, read_timeout=WAIT_LIMIT, connect_timeout=WAIT_LIMIT, parameter_validation=False)
        self.client = boto3.client(
            "bedrock-runtime", endpoint_url=address, region_name="eu-west-1", aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key=KEY, config=config)
        self.headers = {}
        self.client.meta.events.register("before-sign.bedrock-runtime", self.add_headers)

    def add_headers(self, request, **_):
        for name, value in self.headers.items():
            request.headers[name] = value


def of_bedrock(method, raw_body=False, **needed):
    def call(client, recording, headers):
        client.headers = headers
        body = {"body": json.dumps(recording.body)} if raw_body else recording.body
        return getattr(client.client, method)(modelId=recording.model, **{**needed, **body})
    return call


BEDROCK = {
    "bedrock.converse": of_bedrock("converse"),
    "bedrock.converse-stream": of_bedrock("converse_stream"),
    "bedrock.invoke": of_bedrock("invoke_model", raw_body=True),
    "bedrock.invoke-with-response-stream": of_bedrock("invoke_model_with_response_stream", raw_body=True),
    "bedrock.count-tokens": of_bedrock("count_tokens"),
}

VENDORS = [
    Vendor("openai", OPENAI, openai_client(openai.OpenAI)),
    Vendor("openai, async", OPENAI, openai_client(openai.AsyncOpenAI)),
    Vendor("anthropic", ANTHROPIC, anthropic_client(anthropic.Anthropic)),
    Vendor("anthropic, async", ANTHROPIC, anthropic_client(anthropic.AsyncAnthropic)),
    Vendor("anthropic on Bedrock", ON_BEDROCK, anthropic_on_bedrock(anthropic.AnthropicBedrock), fits=is_for_anthropic),
    Vendor("anthropic on Bedrock, async", ON_BEDROCK, anthropic_on_bedrock(anthropic.AsyncAnthropicBedrock),
           fits=is_for_anthropic),
    Vendor("anthropic on Vertex", ON_VERTEX, anthropic_on_vertex(anthropic.AnthropicVertex)),
    Vendor("anthropic on Vertex, async", ON_VERTEX, anthropic_on_vertex(anthropic.AsyncAnthropicVertex)),
    Vendor("google-genai", GEMINI, gemini_client),
    Vendor("google-genai, async", GEMINI, lambda address: gemini_client(address).aio),
    Vendor("google-genai on Vertex", VERTEX, vertex_client),
    Vendor("google-genai on Vertex, async", VERTEX, lambda address: vertex_client(address).aio),
    Vendor("mistralai", mistral_calls(""), mistral_client, fits=is_for_mistral),
    Vendor("mistralai, async", mistral_calls("_async"), mistral_client, fits=is_for_mistral),
    Vendor("cohere", COHERE, cohere_client(cohere.Client)),
    Vendor("cohere, async", COHERE, cohere_client(cohere.AsyncClient)),
    Vendor("ollama", OLLAMA, ollama_client(ollama.Client)),
    Vendor("ollama, async", OLLAMA, ollama_client(ollama.AsyncClient)),
    Vendor("boto3", BEDROCK, Bedrock, decodes=None),
]
