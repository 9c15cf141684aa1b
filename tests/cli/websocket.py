"""A client of WebSockets (RFC 6455), as far as tests and bench/serve need one. Python's standard library alone."""

import base64
import hashlib
import json
import os
import socket
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """The server has not made it a WebSocket: its status, and its body."""

    def __init__(self, status, body):
        super().__init__(f"status {status}: {body}")
        self.status, self.body = status, body


class WebSocket:
    def __init__(self, port, path="/v1/stream", host="127.0.0.1", headers=(), timeout=60):
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received, self.parts = b"", b""
        self.closed = None  # the status that the server gave, once it has
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *(f"{k}: {v}" for k, v in dict(headers).items())]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.received:
            self.take()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            try:
                while True:
                    self.take()
            except (EOFError, OSError):
                pass
            raise Refused(status, self.received.decode(errors="replace"))
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        assert b"sec-websocket-accept: " + accept.lower() in head.lower(), head

    def take(self):
        more = self.socket.recv(1 << 16)
        if not more:
            raise EOFError("the server has closed the connection")
        self.received += more

    def frame(self, kind, payload, last=True):
        # A mask of zeros is one, and leaves the payload as it is.
        head = bytes([kind | (0x80 if last else 0)])
        n = len(payload)
        head += bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xFE, n) if n < 65536 else struct.pack(">BQ", 0xFF, n)
        return head + b"\0\0\0\0" + payload

    def send(self, message):
        """Text for a str, or for what becomes JSON; binary for bytes."""
        if isinstance(message, (dict, list)):
            message = json.dumps(message)
        kind, payload = (TEXT, message.encode()) if isinstance(message, str) else (BINARY, bytes(message))
        self.socket.sendall(self.frame(kind, payload))

    def next_frame(self):
        """One that is whole among what was received: its kind and payload; else nothing."""
        data = self.received
        if len(data) < 2:
            return None
        n, at = data[1] & 127, 2
        if n > 125:
            size = 2 if n == 126 else 8
            if len(data) < 2 + size:
                return None
            n, at = int.from_bytes(data[2:2 + size], "big"), 2 + size
        if len(data) < at + n:
            return None
        self.received = data[at + n:]
        return data[0], data[at:at + n]

    def ready(self):
        """The messages among what was received, without waiting; of a text that is JSON, the value."""
        while (found := self.next_frame()) is not None:
            first, payload = found
            kind = first & 15
            if kind == CLOSE:
                self.closed = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
                try:
                    self.socket.sendall(self.frame(CLOSE, payload[:2]))
                except OSError:
                    pass
                return
            if kind == PING:
                self.socket.sendall(self.frame(PONG, payload))
            elif kind in (0, TEXT, BINARY):
                self.parts += payload
                if first & 0x80:
                    message, self.parts = self.parts, b""
                    yield json.loads(message)

    def messages(self):
        """Those that come, until the server closes."""
        while True:
            yield from self.ready()
            if self.closed is not None:
                return
            try:
                self.take()
            except (EOFError, ConnectionResetError):
                return

    def close(self):
        self.socket.close()
