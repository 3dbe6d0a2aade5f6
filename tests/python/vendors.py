"""The vendors' own clients: how each is pointed at an address, and how it makes the call of a recorded request.

A call is made by the client's own method for it, with the headers of the check as the client's own way to add headers.
Of the recorded request the model and whether a stream was asked for always stand; the rest of its body where the client
lets it through unread, else a word of greeting: what is compared is the answer.
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
from rig import PATIENCE

HELLO = "Say hello in three languages."
KEY = "not-a-key"
MESSAGES = [{"role": "user", "content": HELLO}]


@dataclasses.dataclass(frozen=True)
class Vendor:
    """One client: for each API the call that it makes, `calls[api](client, recording, headers)`."""

    name: str
    calls: dict[str, Callable]
    client: Callable[[str], Any]
    # The content-encoding that the client asks for and undoes, if any.
    decodes: str | None = "gzip"
    # Which of the recordings of these APIs are this client's.
    fits: Callable[[Recording], bool] = lambda recording: True


# --- OpenAI ----------------------------------------------------------------------------------------------------------

def of_openai(method, model=True, streams=False, **needed):
    """A call of openai's client or Anthropic's: by name what it insists on, the rest of the body as it stood."""
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
    return lambda address: kind(base_url=f"{address}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE)


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
    return lambda address: kind(base_url=address, api_key=KEY, max_retries=0, timeout=PATIENCE)


def anthropic_on_bedrock(kind):
    return lambda address: kind(base_url=address, api_key=KEY, aws_region="eu-west-1", max_retries=0, timeout=PATIENCE)


def anthropic_on_vertex(kind):
    return lambda address: kind(base_url=f"{address}/v1", access_token=KEY, region="europe-west1", project_id="example",
                                max_retries=0, timeout=PATIENCE)


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
    return {"base_url": address, "timeout": PATIENCE * 1000, "retry_options": {"attempts": 1}}


def gemini_client(address):
    return google.genai.Client(api_key=KEY, http_options=google_options(address))


def vertex_client(address):
    return google.genai.Client(
        vertexai=True, project="example", location="europe-west1", http_options=google_options(address),
        credentials=google.oauth2.credentials.Credentials(KEY))


# --- Mistral ---------------------------------------------------------------------------------------------------------

# Events of the longest stream of others that Mistral's client is given: 80 of the 82 are shorter or its own.
MISTRAL_EVENTS = 50


def of_mistral(method, stream=None, suffix="", **needed):
    """Mistral's client has a method of its own for streams, and for asynchronous calls."""
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
    """Any stream of OpenAI's format, but long ones only of Mistral's own: its client makes a class for every event."""
    return recording.truth["provider"] == "mistral" or (recording.truth["n_events"] or 0) <= MISTRAL_EVENTS


def mistral_client(address):
    return mistralai.client.Mistral(api_key=KEY, server_url=address, timeout_ms=PATIENCE * 1000)


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
    return lambda address: kind(api_key=KEY, base_url=address, timeout=PATIENCE)


# --- Ollama ----------------------------------------------------------------------------------------------------------

def of_ollama(method, **needed):
    """Ollama's client takes headers only where it is made, so that each call has its own."""
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
    return lambda address: functools.partial(kind, host=address, timeout=PATIENCE)


# --- boto3 -----------------------------------------------------------------------------------------------------------

class Bedrock:
    """boto3's client, which adds the headers of the call just before it signs."""

    def __init__(self, address):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, read_timeout=PATIENCE, connect_timeout=PATIENCE, parameter_validation=False)
        self.client = boto3.client(
            "bedrock-runtime", endpoint_url=address, region_name="eu-west-1", aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key=KEY, config=config)
        self.headers = {}
        self.client.meta.events.register("before-sign.bedrock-runtime", self.add_headers)

    def add_headers(self, request, **_):
        for name, value in self.headers.items():
            request.headers[name] = value


def of_bedrock(method, whole=False, **needed):
    def call(client, recording, headers):
        client.headers = headers
        body = {"body": json.dumps(recording.body)} if whole else recording.body
        return getattr(client.client, method)(modelId=recording.model, **{**needed, **body})
    return call


BEDROCK = {
    "bedrock.converse": of_bedrock("converse"),
    "bedrock.converse-stream": of_bedrock("converse_stream"),
    "bedrock.invoke": of_bedrock("invoke_model", whole=True),
    "bedrock.invoke-with-response-stream": of_bedrock("invoke_model_with_response_stream", whole=True),
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
