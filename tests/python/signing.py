"""Checks which clients of Amazon Bedrock work through the proxy, with boto3 and upstreams that verify signatures.

AWS signs the host name. The public upstream has the real host name, although it listens here: the proxy uses it as `http_proxy` and requests
`http://bedrock-runtime.…` from it. The private upstream accepts the host name by which clients call the proxy, like a self-hosted endpoint.
"""
import dataclasses
import os
import subprocess
import unittest.mock
import urllib.parse
from typing import Callable

import boto3
import botocore.config
import botocore.exceptions

from rig import WAIT_LIMIT, Rig, free_port, of_kind
from sigv4_upstream import ANSWER, USAGE, ReceivedRequest, Key, Upstream

HOST = "bedrock-runtime.eu-west-1.amazonaws.com"
# The colon is escaped in the path, and the signature covers the escaped path.
MODEL = "eu.amazon.nova-2-lite-v1:0"
KEY, API_KEY = Key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), "bedrock-api-key-example"

CONFIGURATION = """
version: 1
listeners:
  - address: 127.0.0.1:{listen}
  - address: 127.0.0.1:{secure}
    tls:
      certificate: {certificate}
      key: {key}
upstreams:
  bedrock:
    url: http://{host}
  private:
    url: http://127.0.0.1:{private}
    preserve_host: true
routes:
  - upstream: private
    match:
      host: localhost
  - name: stripped
    upstream: private
    match:
      host: localhost
      prefix: /bedrock
    strip_prefix: true
  - upstream: bedrock
"""


@dataclasses.dataclass
class Setup:
    """A client configuration for Bedrock through the proxy."""

    name: str
    client: Callable
    # The upstream that receives its requests.
    upstream: Upstream
    refused: bool = False
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Call:
    name: str
    setup: Setup


def check(args, tally):
    public, private = (Upstream(host, KEY, API_KEY) for host in (HOST, None))
    secure = free_port()

    def configuration(rig):
        certificate, key = make_certificate(rig.folder)
        return CONFIGURATION.format(host=HOST, private=private.port, listen=rig.listen, secure=secure,
                                    certificate=certificate, key=key)

    rig = Rig(args, tally, "signing", configuration=configuration,
              environment={"http_proxy": f"http://127.0.0.1:{public.port}"})
    private.host = f"localhost:{rig.listen}"
    try:
        check_upstream(tally, public)
        for setup in setups(rig, secure, public, private):
            for method in ("converse", "converse_stream"):
                check_call(rig, Call(f"signing: {setup.name}: {method}", setup), method)
        check_spans(rig)
        rig.end()
    finally:
        rig.stop()
        public.stop()
        private.stop()


def make_certificate(folder):
    """Returns a self-signed certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-keyout", key, "-out", certificate, "-subj", "/CN=proxy", "-addext", "subjectAltName=IP:127.0.0.1",
    ], check=True, capture_output=True)
    return certificate, key


def setups(rig, secure, public, private):
    proxy = f"127.0.0.1:{rig.listen}"
    return [
        # boto3 sends an API key only over TLS.
        Setup("an API key, the address changed", lambda: client_without_keys(f"https://127.0.0.1:{secure}"), public, environment={
            "AWS_BEARER_TOKEN_BEDROCK": API_KEY, "AWS_CA_BUNDLE": str(rig.folder / "certificate.pem")}),
        Setup("signed for the real host, sent to the proxy", lambda: sent_to(proxy, signing_client()), public),
        Setup("signed for the real host, the proxy as the client's HTTP proxy", signing_client, public, environment={
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": f"http://{HOST}", "http_proxy": f"http://{proxy}"}),
        Setup("signed for the proxy, which keeps the host", lambda: signing_client(f"http://{private.host}"), private),
        Setup("signed for the proxy, which does not", lambda: signing_client(f"http://{proxy}"), public, refused=True),
        Setup("signed with a path that the proxy strips", lambda: signing_client(f"http://{private.host}/bedrock"), private,
            refused=True),
    ]


def signing_client(address=None, secret=KEY.secret, **config):
    return boto3.client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=address,
        aws_access_key_id=KEY.id, aws_secret_access_key=secret,
        config=botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=WAIT_LIMIT, **config))


def client_without_keys(address):
    return boto3.client("bedrock-runtime", region_name="eu-west-1", endpoint_url=address)


def sent_to(address, client):
    """Changes the address to which the client connects after signing."""
    def readdress(request, **_):
        request.url = urllib.parse.urlsplit(request.url)._replace(scheme="http", netloc=address).geturl()

    client.meta.events.register("before-send.bedrock-runtime", readdress)
    return client


# --- calls -----------------------------------------------------------------------------------------------------------

def check_upstream(tally, public):
    """Checks the upstream itself: it accepts valid signatures and nothing else."""
    def answers(client):
        try:
            return ask(client, "converse", {})[0]
        except botocore.exceptions.ClientError as error:
            return error.response["Error"]["Code"]

    # As without a proxy. The upstream acts as the HTTP proxy, because its host name resolves elsewhere.
    setup = {"address": f"http://{HOST}", "proxies": {"http": f"http://127.0.0.1:{public.port}"}}
    for name, client, wanted in (
        ("signed for it", signing_client(**setup), ANSWER),
        ("signed with another secret", signing_client(secret="another", **setup), "InvalidSignatureException"),
        ("signed for another name", signing_client(f"http://127.0.0.1:{public.port}"), "InvalidSignatureException"),
    ):
        seen = answers(client)
        tally.check(f"signing: without the proxy, {name}", seen == wanted, f"{seen}, not {wanted}")


def ask(client, method, headers):
    """Makes the call with these headers, which are also signed. Returns its text and its token counts."""
    def add(request, **_):
        for name, value in headers.items():
            request.headers[name] = value

    client.meta.events.register("before-sign.bedrock-runtime", add)
    answer = getattr(client, method)(modelId=MODEL, messages=[{"role": "user", "content": [{"text": "Hello?"}]}])
    if method == "converse":
        return answer["output"]["message"]["content"][0]["text"], answer["usage"]
    events = list(answer["stream"])
    text = "".join(event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event)
    return text, events[-1]["metadata"]["usage"]


def check_call(rig, call, method):
    try:
        with unittest.mock.patch.dict(os.environ, call.setup.environment):
            seen = ask(call.setup.client(), method, rig.trace(call))
    except botocore.exceptions.ClientError as error:
        seen = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
    wanted = (403, "InvalidSignatureException") if call.setup.refused else (ANSWER, USAGE)
    expected = "is rejected" if call.setup.refused else "is answered"
    rig.tally.check(f"{call.name}: {expected}", seen == wanted, f"{seen}, not {wanted}")
    received, wanted = call.setup.upstream.requests[-1:], ReceivedRequest(call.setup.upstream.host, 403 if call.setup.refused else 200)
    rig.tally.check(f"{call.name}: the upstream received its own host name and answered itself", received == [wanted], received)


def check_spans(rig):
    spans = rig.await_telemetry()
    for trace, call in rig.calls.items():
        for kind in ("SERVER", "CLIENT"):
            found = of_kind(spans.get(trace, []), kind)
            rig.tally.check(f"{call.name}: one {kind} span", len(found) == 1, found)
            wanted = server_span(call) if kind == "SERVER" else client_span(call)
            for name, value in wanted.items() if found else ():
                seen = found[0].get(name)
                rig.tally.check(f"{call.name}: {name} on the {kind} span", seen == value, f"{seen}, not {value}")


def server_span(call):
    """Returns the expected SERVER span. An error comes from the upstream or does not occur; it never comes from the proxy."""
    return {
        "http.response.status_code": 403 if call.setup.refused else 200,
        "tokengauge.local_reply": None,
        "tokengauge.error_source": "client" if call.setup.refused else "none",
    }


def client_span(call):
    wanted = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.provider.name": "aws.bedrock",
        "error.type": "InvalidSignatureException" if call.setup.refused else None,
    }
    if call.setup.refused:
        return wanted
    return {**wanted, "gen_ai.response.finish_reasons": ["end_turn"], "gen_ai.usage.input_tokens": USAGE["inputTokens"],
            "gen_ai.usage.output_tokens": USAGE["outputTokens"]}
