"""The work folder on an object store that fails, by a real S3 server behind the fault proxy."""
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

import kills
from proxy import FaultProxy
from steps import Failure

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "potable", "AWS_SECRET_ACCESS_KEY": "potablesecret", "AWS_REGION": "us-east-1",
               "AWS_ALLOW_HTTP": "true"}


class Server:
    """moto_server on a free port of loopback (`pip install 'moto[server]'`), with the bucket `potable`."""

    def __init__(self, binary):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = tempfile.NamedTemporaryFile(prefix="moto-", suffix=".log")
        self.process = subprocess.Popen([binary, "-H", "127.0.0.1", "-p", str(self.port)],
                                        stdout=self.log, stderr=self.log)
        self.target = ("127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{self.url}/potable", method="PUT"), timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise Failure(f"`{binary}` does not answer: {pathlib.Path(self.log.name).read_text()[-500:]}")

    def close(self):
        self.process.terminate()
        self.process.wait()


def steps_on(setting, name, url):
    """A fresh work folder in the bucket, reached by `url`; the data set goes to a local folder."""
    return setting.new(name, work=f"s3://potable/{name}", environment={"AWS_ENDPOINT_URL": url, **CREDENTIALS})


def faulty(setting, server, seed, share, kinds):
    """One run through the proxy. All steps must end well: the client is to try again by itself."""
    proxy = FaultProxy(server.target, seed, share, kinds)
    try:
        steps = steps_on(setting, f"faulty-{seed}-{'-'.join(kinds).replace(' ', '')}", proxy.url)
        ran = steps.run("plan")
        if ran.returncode != 0:
            raise Failure(f"plan: exit status {ran.returncode}\n{ran.stderr}")
        failed = steps.finish()
        if failed:
            raise Failure(f"{failed[0][0]} gave up:\n{failed[0][2]}")
        steps.check()
    finally:
        proxy.close()
    return proxy.requests, sum(proxy.counts.values())


def dead(setting, server, longest=240):
    """A store that answers nothing but 503: an error that says so, and no endless loop."""
    proxy = FaultProxy(server.target, 1, 1.0, ("503",))
    try:
        steps, began = steps_on(setting, "dead", proxy.url), time.monotonic()
        process = steps.start("plan")
        try:
            _, stderr = process.communicate(timeout=longest)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"plan still tries after {longest} s") from None
        if process.returncode != 2 or "hint:" not in stderr or "s3://potable/dead" not in stderr:
            raise Failure(f"plan: exit status {process.returncode}\n{stderr}")
    finally:
        proxy.close()
    return time.monotonic() - began


def killed(setting, server, made, wanted, calls):
    """Random kills with the work folder in the bucket."""
    return kills.steps_killed(setting, made, wanted, calls,
                              lambda run: steps_on(setting, f"killed-{made.random()}", server.url))
