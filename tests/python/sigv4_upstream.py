"""An upstream like Amazon Bedrock: it accepts requests with a valid signature (AWS Signature Version 4) or API key for one host name.

The signature is computed here from AWS's description, independent of the client library. Requests arrive over plain HTTP, some in absolute
form, as a proxy receives them. The signature covers neither.
"""
import binascii
import collections
import datetime
import hashlib
import hmac
import http.server
import json
import struct
import threading
import urllib.parse

ALGORITHM = "AWS4-HMAC-SHA256"
# The permitted clock difference. AWS uses the same limit.
TOLERANCE = datetime.timedelta(minutes=15)
# Characters that are not escaped in a canonical path or query.
UNRESERVED = "-_.~"

Key = collections.namedtuple("Key", "id secret")
# `target` is path and query as sent, `headers` an `http.client.HTTPMessage`.
Message = collections.namedtuple("Message", "method target headers body")
# A received request, and the status of its response.
ReceivedRequest = collections.namedtuple("ReceivedRequest", "host status")


class Refused(Exception):
    """A rejected request: the type of AWS's error, and its message."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def verify(message, key, host, service):
    """Rejects a message that is not signed with this key for this host name."""
    headers = message.headers
    algorithm, _, rest = headers.get("authorization", "").partition(" ")
    if algorithm != ALGORITHM:
        raise Refused("MissingAuthenticationTokenException", "Missing Authentication Token")
    fields = dict(field.strip().partition("=")[::2] for field in rest.split(","))
    credential, signed = fields.get("Credential", "").split("/"), fields.get("SignedHeaders", "").split(";")
    if len(credential) != 5 or credential[0] != key.id:
        raise Refused("UnrecognizedClientException", "The security token included in the request is invalid.")
    day, region, named, ending = credential[1:]
    stamp = headers.get("x-amz-date", "")
    check_scope(day, stamp, (named, ending) == (service, "aws4_request"))
    unsigned = ({"host"} | {name.lower() for name in headers if name.lower().startswith("x-amz-")}) - set(signed)
    if unsigned:
        raise Refused("InvalidSignatureException", f"These headers must be signed: {sorted(unsigned)}")
    if headers.get_all("host") != [host]:
        raise Refused("InvalidSignatureException", f"This is {host}, not {headers.get_all('host')}")
    scope = "/".join(credential[1:])
    request = canonical_request(message, signed)
    to_sign = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    derived = b"AWS4" + key.secret.encode()
    for part in (day, region, service, "aws4_request"):
        derived = hmac.digest(derived, part.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(derived, to_sign.encode(), "sha256").hex(), fields.get("Signature", "")):
        raise Refused("InvalidSignatureException", (
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access "
            "Key and signing method. Consult the service documentation for details."))


def check_scope(day, stamp, is_ours):
    try:
        signed_at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        raise Refused("IncompleteSignatureException", "Date must be in ISO-8601 'basic format'.") from None
    if not stamp.startswith(day) or not is_ours:
        raise Refused("InvalidSignatureException", "Credential should be scoped to this day and service.")
    if abs(datetime.datetime.now(datetime.timezone.utc) - signed_at) > TOLERANCE:
        raise Refused("InvalidSignatureException", "Signature expired.")


def canonical_request(message, signed):
    path, _, query = message.target.partition("?")
    # Every service except S3 escapes the path once more.
    canonical_path = urllib.parse.quote(path, safe="/" + UNRESERVED)
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    escaped = sorted(tuple(urllib.parse.quote(urllib.parse.unquote(part), safe=UNRESERVED) for part in pair) for pair in pairs)
    values = {name: [" ".join(value.split()) for value in message.headers.get_all(name, [])] for name in signed}
    lines = [f"{name}:{','.join(values[name])}" for name in signed]
    return "\n".join([message.method, canonical_path, "&".join(f"{name}={value}" for name, value in escaped),
                      *lines, "", ";".join(signed), hashlib.sha256(message.body).hexdigest()])


# --- the upstream ----------------------------------------------------------------------------------------------------

ANSWER = "Grüezi, bonjour and ciao."
USAGE = {"inputTokens": 12, "outputTokens": 9, "totalTokens": 21}


class Upstream:
    """Serves Converse and ConverseStream as `host` on its own port, and records the requests."""

    def __init__(self, host, key, api_key):
        self.host, self.key, self.api_key = host, key, api_key
        self.requests = []
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                upstream.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        target = urllib.parse.urlsplit(request.path)._replace(scheme="", netloc="").geturl()
        status, headers = 200, {}
        try:
            self.let_in(Message(request.command, target, request.headers, body))
            content_type, data = converse_stream_response() if target.endswith("/converse-stream") else converse_response()
        except Refused as refusal:
            status, headers = 403, {"x-amzn-errortype": refusal.kind}
            content_type, data = "application/json", json.dumps({"message": str(refusal)}).encode()
        self.requests.append(ReceivedRequest(request.headers.get("host"), status))
        request.send_response(status)
        for name, value in {**headers, "content-type": content_type, "content-length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)

    def let_in(self, message):
        if message.headers.get("authorization") != f"Bearer {self.api_key}":
            verify(message, self.key, self.host, "bedrock")
        elif message.headers.get_all("host") != [self.host]:
            raise Refused("AccessDeniedException", f"This is {self.host}, not {message.headers.get_all('host')}")

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def converse_response():
    answer = {"output": {"message": {"role": "assistant", "content": [{"text": ANSWER}]}}, "stopReason": "end_turn",
              "usage": USAGE, "metrics": {"latencyMs": 321}}
    return "application/json", json.dumps(answer).encode()


def converse_stream_response():
    middle = len(ANSWER) // 2
    events = [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ANSWER[:middle]}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ANSWER[middle:]}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 321}}),
    ]
    return "application/vnd.amazon.eventstream", b"".join(event_message(name, event) for name, event in events)


def event_message(name, event):
    """Encodes one message of AWS's event stream: lengths with checksum, headers, payload, and a checksum of the message."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    packed = b"".join(struct.pack("!B", len(key)) + key.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
                      for key, value in headers.items())
    payload = json.dumps(event).encode()
    lengths = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    message = lengths + struct.pack("!I", binascii.crc32(lengths)) + packed + payload
    return message + struct.pack("!I", binascii.crc32(message))
