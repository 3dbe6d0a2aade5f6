"""Minimal application that calls a provider: POST /ask returns the response of a model.

Reads OPENAI_BASE_URL and OPENAI_API_KEY like the OpenAI SDKs. It has no code for tokengauge.
"""
import http.server
import json
import os
import signal
import threading
import urllib.error
import urllib.request

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
KEY = os.environ.get("OPENAI_API_KEY", "")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def do_POST(self):
        question = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        asked = {"model": "gpt-4o-mini", "stream": True, "messages": [{"role": "user", "content": question}]}
        request = urllib.request.Request(
            f"{BASE}/chat/completions",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for line in answer:
                    self.wfile.write(line)
        except urllib.error.HTTPError as error:
            self.send_response(error.code)
            self.end_headers()
            self.wfile.write(error.read())
        except urllib.error.URLError as error:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(f"{error.reason}\n".encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for requests in flight


server = Server(("0.0.0.0", 8080), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
