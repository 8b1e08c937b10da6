"""An HTTP proxy in front of an object store that fails now and then: 500, 503, 429, slow, cut short,
connections that close, and writes that are done although the answer says that they are not."""
import hashlib
import http.client
import http.server
import threading
import time

KINDS = ("500", "503", "429", "closed", "truncated", "slow", "lost answer")
# Faults in a row that one object may meet; a client that gives up earlier gives up too early.
MOST_IN_A_ROW = 2


class FaultProxy:
    """Listens on loopback and hands requests on to `target` (host, port); a share of them meets a fault.

    Which ones is decided by the seed, the request and how often it came, not by the order of requests.
    """

    def __init__(self, target, seed, share, kinds=KINDS, slow_seconds=0.7):
        self.target, self.seed, self.share, self.kinds, self.slow = target, seed, share, kinds, slow_seconds
        self.lock, self.seen, self.row, self.counts = threading.Lock(), {}, {}, {}
        self.requests = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self):
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def fault(self, method, path):
        """The fault that this request meets, if any."""
        with self.lock:
            self.requests += 1
            key = (method, path)
            count = self.seen[key] = self.seen.get(key, 0) + 1
            digest = hashlib.sha256(f"{self.seed} {method} {path} {count}".encode()).digest()
            hit = int.from_bytes(digest[:4], "big") < self.share * 2**32
            if not hit or (self.share < 1 and self.row.get(key, 0) >= MOST_IN_A_ROW):
                self.row[key] = 0
                return None
            self.row[key] = self.row.get(key, 0) + 1
            kind = self.kinds[digest[4] % len(self.kinds)]
            if kind == "truncated" and method != "GET":
                kind = "lost answer" if "lost answer" in self.kinds else self.kinds[0]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return kind

    def handle(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault = self.fault(request.command, request.path)
        if fault in ("500", "503", "429"):
            return refuse(request, int(fault))
        if fault == "closed":
            request.close_connection = True
            return None
        if fault == "slow":
            time.sleep(self.slow)
        status, headers, answer = self.forward(request, body)
        if fault == "lost answer":
            return refuse(request, 500)
        request.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                request.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), len(answer))
        request.send_header("Content-Length", str(length if request.command == "HEAD" else len(answer)))
        request.end_headers()
        if request.command == "HEAD":
            return None
        if fault == "truncated":
            answer, request.close_connection = answer[: len(answer) // 2], True
        try:
            request.wfile.write(answer)
        except OSError:
            request.close_connection = True
        return None

    def forward(self, request, body):
        server = http.client.HTTPConnection(*self.target, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
        server.request(request.command, request.path, body=body, headers=headers)
        answer = server.getresponse()
        content = answer.read()
        server.close()
        return answer.status, answer.getheaders(), content


def refuse(request, status):
    codes = {500: "InternalError", 503: "SlowDown", 429: "TooManyRequests"}
    body = f"<Error><Code>{codes[status]}</Code><Message>made by the fault proxy</Message></Error>".encode()
    request.send_response_only(status)
    request.send_header("Content-Type", "application/xml")
    request.send_header("Content-Length", str(0 if request.command == "HEAD" else len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
