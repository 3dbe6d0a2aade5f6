"""The Node and Go lines of docs/how-to/provider-apis.md: the client of each line, and the expected host and path.

The calls are in tests/node/base_url_lines.mjs and tests/gosdk/main.go."""
import dataclasses

NODE, GO = "Node", "Go"
# The language tag of a code block on the page.
BLOCKS = {NODE: "js", GO: "go"}


@dataclasses.dataclass(frozen=True)
class Vendor:
    host: str
    # The expected span attributes.
    provider: str
    route: str


@dataclasses.dataclass(frozen=True)
class Line:
    language: str
    # The page's line; after a colon, the client that reads the line's variable.
    name: str
    vendor: Vendor
    # The expected path, with a placeholder for the model.
    path: str
    # Provider and API of the recording, as in its truth file.
    recorded: tuple[str, str]
    # The expected operation of the span.
    operation: str = "chat"
    # Whether the client itself buffers text until more arrives, even without tokengauge.
    lags: bool = False

    @property
    def of_page(self):
        return self.name.partition(":")[0]

    @property
    def title(self):
        return f"{self.language}: {self.name}"


def vendor(host, provider, route=None):
    return Vendor(host, provider, route or provider)


OPENAI, AZURE = vendor("api.openai.com", "openai"), vendor("example.openai.azure.com", "azure.ai.openai", "azure")
ANTHROPIC = vendor("api.anthropic.com", "anthropic")
# The Vercel AI SDK with the variable of Anthropic's own SDKs.
ANTHROPIC_MESSAGES = vendor("api.anthropic.com", "anthropic", "anthropic-messages")
GEMINI = vendor("generativelanguage.googleapis.com", "gcp.gemini", "gemini")
VERTEX = vendor("us-central1-aiplatform.googleapis.com", "gcp.vertex_ai", "vertex")
BEDROCK = vendor("bedrock-runtime.us-east-1.amazonaws.com", "aws.bedrock", "bedrock")
MISTRAL, COHERE = vendor("api.mistral.ai", "mistral_ai", "mistral"), vendor("api.cohere.com", "cohere")
GROQ, CEREBRAS = vendor("api.groq.com", "groq"), vendor("api.cerebras.ai", "cerebras")
DEEPSEEK, XAI = vendor("api.deepseek.com", "deepseek"), vendor("api.x.ai", "x_ai", "xai")
OPENROUTER = vendor("openrouter.ai", "openrouter")
TOGETHER = vendor("api.together.ai", "together_ai", "together")
FIREWORKS, OLLAMA = vendor("api.fireworks.ai", "fireworks"), vendor("ollama.com", "ollama")

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
GENERATE = "/models/{model}:streamGenerateContent"
ON_VERTEX = "/projects/my-project/locations/us-central1/publishers/"
# Recordings.
OF_OPENAI, OF_RESPONSES = ("openai", "openai.chat"), ("openai", "openai.responses")
OF_AZURE, OF_ANTHROPIC = ("azure", "openai.chat"), ("anthropic", "anthropic.messages")
OF_GEMINI, OF_VERTEX = ("gemini", "gemini.streamGenerateContent"), ("vertex", "vertex.streamGenerateContent")
OF_BEDROCK = ("bedrock", "bedrock.converse-stream")


def chat_of(name):
    return name, "openai.chat"


LINES = [
    Line(NODE, "openai", OPENAI, CHAT, OF_OPENAI),
    Line(NODE, "openai: @ai-sdk/openai", OPENAI, CHAT, OF_OPENAI),
    Line(NODE, "openai: @langchain/openai", OPENAI, CHAT, OF_OPENAI),
    Line(NODE, "openai in code", OPENAI, "/v1/responses", OF_RESPONSES),
    Line(NODE, "openai, Vercel", OPENAI, "/v1/responses", OF_RESPONSES),
    Line(NODE, "azure", AZURE, "/openai/deployments/{model}/chat/completions", OF_AZURE),
    Line(NODE, "azure v1", AZURE, f"/openai{CHAT}", OF_AZURE),
    Line(NODE, "anthropic", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(NODE, "anthropic: @ai-sdk/anthropic", ANTHROPIC_MESSAGES, MESSAGES, OF_ANTHROPIC),
    Line(NODE, "anthropic: @langchain/anthropic", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(NODE, "anthropic in code", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(NODE, "anthropic, Vercel", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(NODE, "gemini", GEMINI, f"/v1beta{GENERATE}", OF_GEMINI, "generate_content"),
    Line(NODE, "gemini in code", GEMINI, f"/v1beta{GENERATE}", OF_GEMINI, "generate_content"),
    Line(NODE, "gemini, Vercel", GEMINI, f"/v1beta{GENERATE}", OF_GEMINI, "generate_content"),
    Line(NODE, "vertex", VERTEX, f"/v1beta1{ON_VERTEX}google{GENERATE}", OF_VERTEX, "generate_content"),
    Line(NODE, "anthropic on vertex", VERTEX, f"/v1{ON_VERTEX}anthropic/models/{{model}}:streamRawPredict", OF_ANTHROPIC),
    Line(NODE, "bedrock", BEDROCK, "/model/{model}/converse-stream", OF_BEDROCK),
    Line(NODE, "mistral", MISTRAL, CHAT, chat_of("mistral")),
    Line(NODE, "cohere in code", COHERE, "/v2/chat", ("cohere", "cohere.v2.chat")),
    Line(NODE, "groq", GROQ, f"/openai{CHAT}", chat_of("groq")),
    Line(NODE, "groq in code", GROQ, f"/openai{CHAT}", chat_of("groq")),
    Line(NODE, "cerebras", CEREBRAS, CHAT, OF_OPENAI, lags=True),
    Line(NODE, "deepseek", DEEPSEEK, "/chat/completions", chat_of("deepseek")),
    Line(NODE, "openrouter", OPENROUTER, "/api/v1/chat/completions", chat_of("openrouter")),
    Line(NODE, "openrouter in code", OPENROUTER, "/api/v1/chat/completions", chat_of("openrouter")),
    Line(NODE, "xai", XAI, CHAT, OF_OPENAI),
    Line(NODE, "together in code", TOGETHER, CHAT, chat_of("together")),
    Line(NODE, "fireworks", FIREWORKS, f"/inference{CHAT}", OF_OPENAI),
    Line(NODE, "ollama in code", OLLAMA, "/api/chat", ("ollama", "ollama.chat")),
    Line(GO, "openai", OPENAI, CHAT, OF_OPENAI),
    Line(GO, "openai in code", OPENAI, "/v1/responses", OF_RESPONSES),
    Line(GO, "azure", AZURE, "/openai/deployments/{model}/chat/completions", OF_AZURE),
    Line(GO, "azure v1", AZURE, f"/openai{CHAT}", OF_AZURE),
    Line(GO, "anthropic", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(GO, "anthropic in code", ANTHROPIC, MESSAGES, OF_ANTHROPIC),
    Line(GO, "gemini", GEMINI, f"/v1beta{GENERATE}", OF_GEMINI, "generate_content"),
    Line(GO, "gemini in code", GEMINI, f"/v1beta{GENERATE}", OF_GEMINI, "generate_content"),
    Line(GO, "vertex", VERTEX, f"/v1beta1{ON_VERTEX}google{GENERATE}", OF_VERTEX, "generate_content"),
    Line(GO, "bedrock", BEDROCK, "/model/{model}/converse-stream", OF_BEDROCK),
    Line(GO, "deepseek", DEEPSEEK, "/chat/completions", chat_of("deepseek")),
    Line(GO, "openrouter", OPENROUTER, "/api/v1/chat/completions", chat_of("openrouter")),
    Line(GO, "xai", XAI, CHAT, OF_OPENAI),
    Line(GO, "together", TOGETHER, CHAT, chat_of("together")),
    Line(GO, "fireworks", FIREWORKS, f"/inference{CHAT}", OF_OPENAI),
    Line(GO, "mistral", MISTRAL, CHAT, chat_of("mistral")),
    Line(GO, "groq", GROQ, f"/openai{CHAT}", chat_of("groq")),
]


# --- Go sources ------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Package:
    """A Go client. Its lines have their own file, because two clients have a package named `option`."""

    name: str
    # The imports of its file.
    imports: tuple[str, ...]
    # The type that the call in main.go takes.
    makes: str
    # A suffix for the client in the return statement.
    ending: str
    # The constructor for a line that sets a variable.
    default: str


GO_OPENAI = Package(
    "openai", ("github.com/openai/openai-go/v3", "github.com/openai/openai-go/v3/azure", "github.com/openai/openai-go/v3/option"),
    "openai.Client", "", "client := openai.NewClient()")
GO_ANTHROPIC = Package(
    "anthropic", ("github.com/anthropics/anthropic-sdk-go", "github.com/anthropics/anthropic-sdk-go/option"), "anthropic.Client", "",
    "client := anthropic.NewClient()")
GO_GENAI = Package("genai", ("google.golang.org/genai",), "(*genai.Client, error)", ", err", "client, err := genai.NewClient(ctx, nil)")
GO_BEDROCK = Package(
    "bedrock", ("github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/service/bedrockruntime"),
    "(*bedrockruntime.Client, error)", ", err",
    "configuration, err := config.LoadDefaultConfig(ctx)\nclient := bedrockruntime.NewFromConfig(configuration)")


def package(line):
    """Returns the package of a Go line, and its call in main.go."""
    name = line.recorded[1]
    return {"openai.chat": (GO_OPENAI, "openaiChat"), "openai.responses": (GO_OPENAI, "openaiResponses"),
            "anthropic.messages": (GO_ANTHROPIC, "anthropicMessages"),
            "gemini.streamGenerateContent": (GO_GENAI, "gemini"), "vertex.streamGenerateContent": (GO_GENAI, "gemini"),
            "bedrock.converse-stream": (GO_BEDROCK, "bedrock")}[name]
