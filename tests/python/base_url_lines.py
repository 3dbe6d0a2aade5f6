"""The base-URL lines of docs/how-to/provider-apis.md for Python, and the streamed call for each.

As a program, reads a JSON object of line names and code from stdin and makes the calls one after the other. Writes the same object with the
result of each stream: its text pieces, or the raised error."""
import dataclasses
import json
import sys
from typing import Callable

import google.auth
import google.oauth2.credentials

KEY = "not-a-key"
HELLO = "Say hello in three languages."
MESSAGES = [{"role": "user", "content": HELLO}]
MODEL = "model-of-the-caller"
# Some clients refuse to start without a key, a region or a project.
SURROUNDINGS = {
    "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY, "CO_API_KEY": KEY, "GROQ_API_KEY": KEY,
    "CEREBRAS_API_KEY": KEY, "MISTRAL_API_KEY": KEY, "AZURE_OPENAI_API_KEY": KEY, "DEEPSEEK_API_KEY": KEY,
    "OPENROUTER_API_KEY": KEY, "XAI_API_KEY": KEY, "TOGETHER_API_KEY": KEY, "FIREWORKS_API_KEY": KEY, "OLLAMA_API_KEY": KEY,
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": KEY, "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclasses.dataclass(frozen=True)
class Line:
    name: str
    # The imports of the program.
    imports: str
    # The client for a line that sets an environment variable, created as without a proxy. None if the line creates its client.
    client: str | None
    # Makes the streamed call and yields its text pieces.
    stream: Callable
    # The expected host and path.
    host: str
    path: str
    # Provider and API of the recording, as in its truth file.
    recorded: tuple[str, str]
    # The expected provider, route and operation of the span.
    provider: str
    route: str
    operation: str = "chat"


# --- streamed calls --------------------------------------------------------------------------------------------------

def openai_chat(client):
    for chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
        yield from (choice.delta.content for choice in chunk.choices if choice.delta and choice.delta.content)


def openai_responses(client):
    for event in client.responses.create(model=MODEL, input=HELLO, stream=True):
        if event.type == "response.output_text.delta":
            yield event.delta


def anthropic_messages(client):
    with client.messages.stream(model=MODEL, max_tokens=100, messages=MESSAGES) as stream:
        yield from stream.text_stream


def gemini(client):
    for chunk in client.models.generate_content_stream(model=MODEL, contents=HELLO):
        yield chunk.text or ""


def mistral(client):
    for event in client.chat.stream(model=MODEL, messages=MESSAGES):
        yield from (choice.delta.content for choice in event.data.choices if choice.delta.content)


def cohere(client):
    for event in client.chat_stream(model=MODEL, messages=MESSAGES):
        if event.type == "content-delta":
            yield event.delta.message.content.text or ""


def ollama(client):
    for part in client.chat(model=MODEL, messages=MESSAGES, stream=True):
        yield part.message.content or ""


def bedrock(client):
    for event in client.converse_stream(modelId=MODEL, messages=[{"role": "user", "content": [{"text": HELLO}]}])["stream"]:
        if "contentBlockDelta" in event:
            yield event["contentBlockDelta"]["delta"].get("text", "")


# --- the lines -------------------------------------------------------------------------------------------------------

CHAT, OPENAI_CHAT = "/v1/chat/completions", ("openai", "openai.chat")
GOOGLE = "/models/" + MODEL + ":streamGenerateContent"
LINES = [
    Line("openai", "import openai", "openai.OpenAI()", openai_chat, "api.openai.com", CHAT, OPENAI_CHAT, "openai", "openai"),
    Line("openai in code", "import openai", None, openai_responses, "api.openai.com", "/v1/responses",
         ("openai", "openai.responses"), "openai", "openai"),
    Line("azure", "import openai", None, openai_chat, "example.openai.azure.com", f"/openai/deployments/{MODEL}/chat/completions",
         ("azure", "openai.chat"), "azure.ai.openai", "azure"),
    Line("azure v1", "import openai", None, openai_chat, "example.openai.azure.com", "/openai/v1/chat/completions",
         ("azure", "openai.chat"), "azure.ai.openai", "azure"),
    Line("anthropic", "import anthropic", "anthropic.Anthropic()", anthropic_messages, "api.anthropic.com", "/v1/messages",
         ("anthropic", "anthropic.messages"), "anthropic", "anthropic"),
    Line("anthropic in code", "import anthropic", None, anthropic_messages, "api.anthropic.com", "/v1/messages",
         ("anthropic", "anthropic.messages"), "anthropic", "anthropic"),
    Line("gemini", "from google import genai", "genai.Client()", gemini, "generativelanguage.googleapis.com", f"/v1{GOOGLE}",
         ("gemini", "gemini.streamGenerateContent"), "gcp.gemini", "gemini", "generate_content"),
    Line("gemini in code", "from google import genai", None, gemini, "generativelanguage.googleapis.com", f"/v1{GOOGLE}",
         ("gemini", "gemini.streamGenerateContent"), "gcp.gemini", "gemini", "generate_content"),
    Line("vertex", "from google import genai", None, gemini, "us-central1-aiplatform.googleapis.com",
         f"/v1beta1/projects/my-project/locations/us-central1/publishers/google{GOOGLE}",
         ("vertex", "vertex.streamGenerateContent"), "gcp.vertex_ai", "vertex", "generate_content"),
    Line("anthropic on vertex", "import anthropic", None, anthropic_messages, "us-central1-aiplatform.googleapis.com",
         f"/v1/projects/my-project/locations/us-central1/publishers/anthropic/models/{MODEL}:streamRawPredict",
         ("anthropic", "anthropic.messages"), "gcp.vertex_ai", "vertex"),
    Line("bedrock", "import boto3", "boto3.client('bedrock-runtime')", bedrock, "bedrock-runtime.us-east-1.amazonaws.com",
         f"/model/{MODEL}/converse-stream", ("bedrock", "bedrock.converse-stream"), "aws.bedrock", "bedrock"),
    Line("mistral", "from mistralai.client import Mistral", None, mistral, "api.mistral.ai", CHAT, ("mistral", "openai.chat"), "mistral_ai",
         "mistral"),
    Line("cohere", "import cohere", "cohere.ClientV2()", cohere, "api.cohere.com", "/v2/chat", ("cohere", "cohere.v2.chat"),
         "cohere", "cohere"),
    Line("cohere in code", "import cohere", None, cohere, "api.cohere.com", "/v2/chat", ("cohere", "cohere.v2.chat"), "cohere",
         "cohere"),
    Line("groq", "import groq", "groq.Groq()", openai_chat, "api.groq.com", f"/openai{CHAT}", ("groq", "openai.chat"), "groq",
         "groq"),
    Line("groq in code", "import groq", None, openai_chat, "api.groq.com", f"/openai{CHAT}", ("groq", "openai.chat"), "groq", "groq"),
    Line("deepseek", "import openai", None, openai_chat, "api.deepseek.com", "/chat/completions", ("deepseek", "openai.chat"),
         "deepseek", "deepseek"),
    Line("cerebras", "from cerebras.cloud.sdk import Cerebras", "Cerebras(warm_tcp_connection=False)", openai_chat, "api.cerebras.ai",
         CHAT, OPENAI_CHAT, "cerebras", "cerebras"),
    Line("openrouter", "import openai", None, openai_chat, "openrouter.ai", "/api/v1/chat/completions",
         ("openrouter", "openai.chat"), "openrouter", "openrouter"),
    Line("xai", "import openai", None, openai_chat, "api.x.ai", CHAT, OPENAI_CHAT, "x_ai", "xai"),
    Line("together", "import openai", None, openai_chat, "api.together.ai", CHAT, ("together", "openai.chat"), "together_ai",
         "together"),
    Line("fireworks", "import openai", None, openai_chat, "api.fireworks.ai", f"/inference{CHAT}", OPENAI_CHAT, "fireworks",
         "fireworks"),
    Line("ollama", "import ollama", "ollama.Client()", ollama, "ollama.com", "/api/chat", ("ollama", "ollama.chat"), "ollama",
         "ollama"),
    Line("ollama in code", "import ollama", None, ollama, "ollama.com", "/api/chat", ("ollama", "ollama.chat"), "ollama", "ollama"),
]


class LoggedIn(google.oauth2.credentials.Credentials):
    """Google Cloud credentials of the test machine. The token never expires."""

    def refresh(self, request):
        pass


def outcome(line, code):
    known = {}
    try:
        exec(f"import os\n{line.imports}", known)
        exec(f"client = {line.client}" if line.client else code, known)
        return [piece for piece in line.stream(known["client"]) if piece]
    except Exception as error:  # The error is the result of the line.
        return f"{type(error).__name__}: {error}"


def main():
    google.auth.default = lambda *_, **__: (LoggedIn(KEY), "my-project")
    of = {line.name: line for line in LINES}
    json.dump({name: outcome(of[name], code) for name, code in json.load(sys.stdin).items()}, sys.stdout)


if __name__ == "__main__":
    main()
