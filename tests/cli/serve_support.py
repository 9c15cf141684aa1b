"""A running `rondo serve`, and requests to it, for tests of it."""

import contextlib
import http.client
import os
import re
import subprocess

from cli_support import *


class Server:
    def __init__(self, process, port):
        self.process, self.port, self.pid = process, port, process.pid

    def ask(self, method, path, body=None, headers=(), port=None):
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def json(self, path, status=200, **more):
        found, headers, body = self.ask("GET", path, **more)
        check(found == status, path, found, body)
        check(headers["content-type"] == "application/json", headers)
        return json.loads(body)

    def post(self, file, *fields, path="/v1/audio/transcriptions", name="a.wav", headers=()):
        """A form with the file's bytes (None: without) and fields (name, value)."""
        body, kind = form(file, *fields, name=name)
        return self.ask("POST", path, body, {"Content-Type": kind, **dict(headers)})

    def text(self, file, *fields, **more):
        status, _, body = self.post(file, *fields, **more)
        check(status == 200, status, body)
        return json.loads(body)["text"]

    def error(self, status, *words, reply):
        """A reply in the form of OpenAI's errors, whose message has all the words."""
        found, headers, body = reply
        check(found == status, f"status {found}, expected {status}:", body)
        error = json.loads(body)["error"]
        check(set(error) == {"message", "type", "param", "code"}, error)
        check("internal" not in error["message"], error)
        for word in words:
            check(word in error["message"], f"'{word}' is not in", error)
        return error, headers

    def stop(self, number=signal.SIGTERM):
        """What it says on standard error while it ends."""
        self.process.send_signal(number)
        try:
            out, err = output_of(self.process, TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError("the server does not end")
        check(self.process.returncode == 128 + number, self.process.returncode, err)
        check(out == "", out)
        return err


def form(file, *fields, name="a.wav", boundary="----a-boundary"):
    """(body, Content-Type)"""
    parts = [f'Content-Disposition: form-data; name="{key}"\r\n\r\n'.encode() + str(value).encode() for key, value in fields]
    if file is not None:
        parts.insert(0, f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n'
                        "Content-Type: application/octet-stream\r\n\r\n".encode() + file)
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + part + b"\r\n" for part in parts)
    return body + b"--" + boundary.encode() + b"--\r\n", f"multipart/form-data; boundary={boundary}"


@contextlib.contextmanager
def server(*words, environment=(), program=RONDO):
    """`rondo serve`, on a free port, once it listens."""
    env = {k: v for k, v in os.environ.items() if k != "RONDO_TOKEN"} | dict(environment)
    process = start("serve", *words, "--port", 0, program=program, env=env)
    try:
        line = process.stderr.readline().decode()
        while line.startswith("warning: "):
            line = process.stderr.readline().decode()
        if "built without libwebsockets" in line:
            raise Skip("the program was built without libwebsockets")
        found = re.fullmatch(r"listening on http://\S+:(\d+)\n", line)
        check(found, "it does not listen:", line, process.poll())
        yield Server(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
