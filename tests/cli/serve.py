"""rondo serve: requests, streams, limits, and what it refuses. What it says is what rondo transcribe says."""

import io
import socket
import threading

from cli_support import *
from line_images import LINES, line_corpus
from serve_support import Server, form, server
from websocket import Refused, WebSocket

made = {}


def corpus():
    """A folder with recordings, a model that can stream and one that cannot; made once."""
    if not made:
        root = made["root"] = pathlib.Path(tempfile.mkdtemp(prefix="rondo-serve-"))
        (root / "data").mkdir()
        tone_corpus(root / "data")
        train(root / "data", root / "one_way", "training.epochs=30", "model.bidirectional=false", "features.cmvn=global", base=TONE)
        train(root / "data", root / "both", "training.epochs=8", base=TONE)
    return made["root"]


def recording(number=0):
    return (corpus() / "data" / f"dev{number:03}.wav").read_bytes()


def said(model, number=0, *words):
    return run("transcribe", corpus() / model, corpus() / "data" / f"dev{number:03}.wav", *words)[0]


def long_recording(count=12):
    """All the development recordings, one after the other."""
    samples = array.array("h")
    for n in range(count):
        with wave.open(io.BytesIO(recording(n))) as file:
            samples.frombytes(file.readframes(file.getnframes()))
    return samples


def wav_of(samples):
    path = corpus() / "joined.wav"
    write_wav(path, samples)
    return path


def raw_of(file):
    with wave.open(io.BytesIO(file)) as opened:
        return opened.readframes(opened.getnframes())


def test_models_and_health():
    with server(corpus() / "one_way") as s:
        check(s.json("/health") == {"status": "ok"})
        listed = s.json("/v1/models")
        check(listed["object"] == "list" and len(listed["data"]) == 1, listed)
        model = listed["data"][0]
        check((model["id"], model["object"], model["reads"], model["rate"], model["streams"]) ==
              ("one_way", "model", "recordings", RATE, True), model)
        check(s.json("/v1/models/one_way") == model)
        s.error(404, "there is no model 'other'", reply=s.get("/v1/models/other"))
        s.error(404, "no run is watched", reply=s.get("/v1/run"))
        s.error(404, "there is no '/v2'", reply=s.get("/v2"))
        _, headers = s.error(405, "asked for by GET, expected POST", reply=s.get("/v1/audio/transcriptions"))
        check(headers["allow"] == "POST", headers)
        _, headers = s.error(405, "asked for by POST, expected GET", reply=s.ask("POST", "/health", b"x"))
        check(headers["allow"] == "GET", headers)
        page = s.get("/")
        check(page[0] == 200 and page[1]["content-type"].startswith("text/html"), page)
        check(b"</html>" in page[2] and "default-src 'none'" in page[1]["content-security-policy"])
        s.stop()
    with server(corpus() / "both", "--name", "whisper-1") as s:
        model = s.json("/v1/models")["data"][0]
        check(model["id"] == "whisper-1" and not model["streams"] and "normalises each recording" in model["why_no_stream"], model)


def test_every_format_says_what_transcribe_says():
    for name in ("one_way", "both"):
        with server(corpus() / name) as s:
            file, text = recording(), said(name).strip()
            check(s.text(file) == text, text)
            check(s.text(file, ("model", name), ("language", "en"), ("temperature", "0"), ("prompt", "x")) == text)
            status, headers, body = s.post(file, ("response_format", "text"))
            check(status == 200 and headers["content-type"].startswith("text/plain") and body.decode() == text + "\n", body)
            for kind in ("srt", "vtt"):
                status, _, body = s.post(file, ("response_format", kind))
                check(status == 200 and body.decode() == said(name, 0, "--format", kind), kind, body)
            check_verbose(s, file, name, text)


def check_verbose(s, file, name, text):
    known = json.loads(said(name, 0, "--format", "jsonl"))
    status, _, body = s.post(file, ("response_format", "verbose_json"), ("language", "xx"),
                             ("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment"))
    check(status == 200, body)
    reply = json.loads(body)
    check((reply["task"], reply["language"], reply["text"]) == ("transcribe", "xx", text), reply)
    check(abs(reply["duration"] - known["duration"]) < 1e-3, reply, known)
    check([(w["word"], w["start"], w["end"]) for w in reply["words"]] ==
          [(w["text"], round(w["begin"], 3), round(w["end"], 3)) for w in known["words"]], reply, known)
    check(" ".join(segment["text"] for segment in reply["segments"]) == text, reply)
    times = [t for segment in reply["segments"] for t in (segment["start"], segment["end"])]
    check(times == sorted(times) and times[-1] <= reply["duration"], times)
    mean = sum(math.log(c["probability"]) for c in known["characters"]) / len(known["characters"])
    check(len(reply["segments"]) > 1 or abs(reply["segments"][0]["avg_logprob"] - mean) < 1e-6, reply, mean)
    plain = json.loads(s.post(file, ("response_format", "verbose_json"))[2])
    check("segments" in plain and "words" not in plain, plain)


def events_of(body):
    lines = body.decode().split("\n\n")
    check(lines[-2:] == ["data: [DONE]", ""], lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_a_reply_in_events():
    samples = long_recording()
    path = wav_of(samples)
    for name, least in (("one_way", 5), ("both", 1)):
        text = run("transcribe", corpus() / name, path)[0].strip()
        with server(corpus() / name) as s:
            status, headers, body = s.post(path.read_bytes(), ("stream", "true"))
            check(status == 200 and headers["content-type"] == "text/event-stream", headers)
            events = events_of(body)
            deltas = [e["delta"] for e in events if e["type"] == "transcript.text.delta"]
            check("".join(deltas) == text and len(deltas) >= least, deltas, text)
            check(events[-1] == {"type": "transcript.text.done", "text": text}, events[-1])
            s.error(400, "goes with response_format json, it is srt", reply=s.post(recording(), ("stream", "true"), ("response_format", "srt")))
            s.error(400, "a.wav: ", reply=s.post(b"garbage" * 100, ("stream", "true")))


def test_a_long_recording_goes_through_in_pieces():
    path = wav_of(long_recording())
    text = run("transcribe", corpus() / "both", path, "--piece", 2)[0].strip()
    with server(corpus() / "both", "--piece", 2) as s:
        check(s.text(path.read_bytes()) == text, text)


def test_what_is_wrong_with_a_request_is_said():
    with server(corpus() / "one_way", "--most-seconds", 3, "--most-mb", 1) as s:
        file = recording()
        error, _ = s.error(404, "there is no model 'gpt-9', expected 'one_way'", reply=s.post(file, ("model", "gpt-9")))
        check((error["param"], error["code"]) == ("model", "model_not_found"), error)
        error, _ = s.error(400, "no part 'file'", reply=s.post(None, ("model", "one_way")))
        check(error["param"] == "file" and error["type"] == "invalid_request_error", error)
        s.error(400, "the file is empty", reply=s.post(b""))
        s.error(400, "two files", reply=s.post(file, ("file", "x")))
        s.error(400, "response_format is 'xml', expected one of json, text, srt", reply=s.post(file, ("response_format", "xml")))
        s.error(400, "stream is 'maybe', expected true or false", reply=s.post(file, ("stream", "maybe")))
        s.error(400, "expected one of word, segment", reply=s.post(file, ("timestamp_granularities[]", "letter")))
        s.error(400, "mine.wav: ", reply=s.post(b"no sound at all, though a kilobyte of it" * 25, name="mine.wav"))
        s.error(400, "truncated", reply=s.post(file[:len(file) // 2]))
        s.error(400, "expected multipart/form-data", reply=s.ask("POST", "/v1/audio/transcriptions", b"{}", {"Content-Type": "application/json"}))
        body, kind = form(file)
        s.error(400, "cut off", reply=s.ask("POST", "/v1/audio/transcriptions", body[:-30], {"Content-Type": kind}))
        s.error(400, "the request has no body", reply=s.ask("POST", "/v1/audio/transcriptions", b"", {"Content-Type": kind}))
        s.error(411, "Content-Length", reply=s.ask("POST", "/v1/audio/transcriptions", iter([b"x"]), {"Content-Type": kind, "Transfer-Encoding": "chunked"}))
        s.error(413, "expected at most 1048576", "--most-mb", reply=s.post(b"x" * (1 << 20)))
        s.error(413, "longer than the 3 seconds", reply=s.post(wav_of(long_recording()).read_bytes()))
        s.error(400, "reads recordings (POST /v1/audio/transcriptions)", reply=s.post(file, path="/v1/images/transcriptions"))
        check(s.text(file) == said("one_way").strip())  # and it goes on
        s.stop(signal.SIGINT)


def test_who_may_ask():
    with folder() as root:
        (root / "token").write_text("s3cret\n")
        with server(corpus() / "one_way", "--token-file", root / "token") as s:
            check(s.json("/health") == {"status": "ok"})
            check(s.get("/")[0] == 200)
            error, _ = s.error(401, "there is no token", reply=s.get("/v1/models"))
            check(error["code"] == "invalid_api_key", error)
            for wrong in ("Bearer s3cre", "Bearer s3cret2", "Bearer ", "s3cret", "Basic s3cret"):
                s.error(401, "token", reply=s.get("/v1/models", headers={"Authorization": wrong}))
            s.error(401, "token", reply=s.post(recording()))
            right = {"Authorization": "Bearer s3cret"}
            check(s.json("/v1/models", headers=right)["data"])
            check(s.text(recording(), headers=right) == said("one_way").strip())
            check(s.json("/v1/models", headers={**right, "Host": "a.name.of.mine"})["data"])
            for first in ({"rate": RATE}, {"rate": RATE, "token": "wrong"}):
                check(stream(s, recording(), first=first)[-1]["error"]["code"] == "invalid_api_key")
            check(stream(s, recording(), first={"rate": RATE, "token": "s3cret"})[-1] == {"end": True})
            check(stream(s, recording(), headers=right)[-1] == {"end": True})
            refused(s, 401, "not the server's", headers={"Authorization": "Bearer wrong"})
        with server(corpus() / "one_way", environment={"RONDO_TOKEN": "from-here"}) as s:
            s.error(401, reply=s.get("/v1/models"))
            check(s.json("/v1/models", headers={"Authorization": "Bearer from-here"})["data"])


def test_pages_of_other_sites_may_not():
    with server(corpus() / "one_way") as s:
        own = f"http://127.0.0.1:{s.port}"
        check(s.json("/v1/models", headers={"Origin": own})["data"])
        check("access-control-allow-origin" not in s.get("/v1/models", headers={"Origin": own})[1])
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://127.0.0.1:{s.port}.evil.example"):
            s.error(403, "comes from a page of", reply=s.get("/v1/models", headers={"Origin": origin}))
            s.error(403, "comes from a page of", reply=s.post(recording(), headers={"Origin": origin}))
            refused(s, 403, "comes from a page of", headers={"Origin": origin})
        check(stream(s, recording(), headers={"Origin": own})[-1] == {"end": True})
        # A name that was made to mean this machine.
        s.error(403, "asked for as rebound.example", reply=s.get("/v1/models", headers={"Host": f"rebound.example:{s.port}"}))
        check(s.get("/health", headers={"Host": f"localhost:{s.port}"})[0] == 200)


def refused(s, status, *words, path="/v1/stream", **more):
    try:
        WebSocket(s.port, path, **more)
    except Refused as e:
        s.error(status, *words, reply=(e.status, {}, e.body.split("\r\n\r\n")[-1]))
    else:
        raise AssertionError("the stream was not refused")


def stream(s, file, first=None, piece=2 * RATE // 5, ends=True, samples=None, **more):
    """All that the server says to a stream of a file's samples."""
    socket = WebSocket(s.port, **more)
    socket.send(first or {"rate": RATE})
    samples = samples or raw_of(file)
    try:
        for at in range(0, len(samples), piece):
            socket.send(samples[at:at + piece])
        if ends:
            socket.send({"end": True})
    except (BrokenPipeError, ConnectionResetError):
        pass  # it may have been refused by now
    said = list(socket.messages())
    socket.close()
    return said


def finals(messages):
    check(messages[-1] == {"end": True}, messages[-3:])
    return [m for m in messages if "final" in m]


def test_a_stream_says_what_transcribe_says():
    samples = long_recording()
    path = wav_of(samples)
    known = [json.loads(line) for line in
             run("transcribe", corpus() / "one_way", path, "--stream", "--format", "jsonl", "--end-silence", 0.3)[0].splitlines()]
    with server(corpus() / "one_way", "--end-silence", 0.3) as s:
        for piece in (1, 1001, 2 * RATE):
            some = samples.tobytes() if piece > 1 else samples.tobytes()[:RATE]
            got = stream(s, b"", samples=some, piece=piece)
            if piece == 1:
                check(len(finals(got)) <= 2, got)
                continue
            check([(m["final"], m["begin"], m["end"]) for m in finals(got)] ==
                  [(k["text"], round(k["begin"], 3), round(k["end"], 3)) for k in known], finals(got), known)
            check([m["words"] for m in finals(got)] == [k["words"] for k in known])
            partial = [m for m in got if "partial" in m]
            check(len(partial) > len(known) and all(0 < m["at"] <= len(samples) / RATE for m in partial), partial[:3])
            check([m["at"] for m in partial] == sorted(m["at"] for m in partial))
        floats = array.array("f", (v / 32768 for v in samples)).tobytes()
        got = stream(s, b"", samples=floats, piece=999, first={"rate": RATE, "format": "f32"})
        check([m["final"] for m in finals(got)] == [k["text"] for k in known])
        doubled = array.array("h", (v for v in samples for _ in range(2)))  # twice the rate
        got = stream(s, b"", samples=doubled.tobytes(), first={"rate": 2 * RATE})
        check(abs(finals(got)[-1]["end"] - known[-1]["end"]) < 0.3 and len(finals(got)) >= len(known) - 2, finals(got)[-1], known[-1])
        s.stop()


def test_hot_words_of_a_stream_and_of_a_request():
    with folder() as root:
        (root / "hot").write_text("a a a\n")
        known = said("one_way", 1, "--hot-words", root / "hot").strip()
        with server(corpus() / "one_way") as s:
            check(s.text(recording(1), ("hot_words[]", "a a a")) == known, known)
            check(s.text(recording(1)) == said("one_way", 1).strip())
            got = finals(stream(s, recording(1), first={"rate": RATE, "hot_words": ["a a a"]}))
            check(" ".join(m["final"] for m in got) == known, got, known)


def test_bad_messages_of_streams_are_errors():
    with server(corpus() / "one_way") as s:
        def fails(*messages, says):
            socket = WebSocket(s.port)
            try:
                for message in messages:
                    socket.send(message)
            except (BrokenPipeError, ConnectionResetError):
                pass
            got = list(socket.messages())
            check(got and set(got[-1]) == {"error"} and says in got[-1]["error"]["message"], got, says)
            check(socket.closed == 1008, socket.closed)
        start = {"rate": RATE}
        fails(b"\0\0", says="sound before the first message")
        fails("{", says="expected {\"rate\"")
        fails("[1]", says="is array")
        fails({}, says="has no 'rate'")
        fails({"rate": 7999}, says="'rate' is 7999")
        fails({"rate": "8000"}, says="'rate' is \"8000\"")
        fails({"rate": 8001}, says="too little in common")
        fails({"rate": RATE, "format": "mp3"}, says="'format' is 'mp3'")
        fails({"rate": RATE, "speed": 2}, says="has 'speed'")
        fails({"rate": RATE, "hot_words": "a"}, says="'hot_words' is string")
        fails({"rate": RATE, "hot_words": ["a" * 201]}, says="has 201 bytes")
        fails(start, start, says="expected {\"end\": true}")
        fails(start, {"end": False}, says="expected {\"end\": true}")
        fails(start, b"\0", {"end": True}, says="ends within a sample")
        fails({"rate": RATE, "format": "f32"}, struct.pack("<ff", 0, float("nan")), says="sample")
        fails("x" * (1 << 19), says="more than 262144 bytes")
        refused(s, 404, "is no WebSocket", path="/v1/models")
        s.error(400, "is a WebSocket", reply=s.get("/v1/stream"))
        check(stream(s, recording())[-1] == {"end": True})
        s.stop()
    with server(corpus() / "both") as s:
        refused(s, 400, "normalises each recording")


def test_streams_are_bounded_and_end_when_silent():
    with server(corpus() / "one_way", "--streams", 2, "--timeout", 1) as s:
        two = [WebSocket(s.port) for _ in range(2)]
        refused(s, 503, "no place for another stream")
        for socket in two:
            got = list(socket.messages())  # it says nothing, and is told so
            check("nothing has come for 1 seconds" in got[-1]["error"]["message"], got)
        wait_until(lambda: opens(s), s.process)


def test_a_client_that_is_fast_is_held_up():
    samples = long_recording().tobytes() * 40
    with server(corpus() / "one_way", "--threads", 1) as s:
        got = stream(s, b"", samples=samples, piece=1 << 17)
        check(abs(finals(got)[-1]["end"] - len(samples) / 2 / RATE) < 2, finals(got)[-1], len(samples) / 2 / RATE)


def test_clients_that_go_away():
    with server(corpus() / "one_way", "--threads", 1, "--queue", 2, "--streams", 2) as s:
        for _ in range(6):
            # The place of one that has gone comes free when the server notices.
            wait_until(lambda: opens(s, {"rate": RATE}, raw_of(recording())), s.process)
        body, kind = form(recording())
        head = (f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost:{s.port}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        for cut in (len(head) // 2, len(head) + 10, len(head) + len(body)):
            for _ in range(6):
                gone = socket_to(s)
                gone.sendall((head + body)[:cut])
                gone.close()
        wait_until(lambda: s.post(recording())[0] == 200, s.process)
        wait_until(lambda: opens(s), s.process)
        s.stop()


def socket_to(s):
    return socket.create_connection(("127.0.0.1", s.port), timeout=TIMEOUT)


def opens(s, *messages):
    """Whether there is a place for a stream; it says so much, and is gone."""
    try:
        socket = WebSocket(s.port)
    except Refused as e:
        check(e.status == 503, e)
        return False
    for message in messages:
        socket.send(message)
    socket.close()
    return True


def test_a_client_that_never_ends_its_request():
    with server(corpus() / "one_way", "--timeout", 1, "--threads", 1, "--queue", 0) as s:
        slow = socket_to(s)
        slow.sendall(f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost:{s.port}\r\nContent-Length: 1000\r\n\r\n".encode())
        wait_until(lambda: s.post(recording())[0] == 503, s.process)
        check(slow.recv(100) == b"", "the connection is not closed")
        wait_until(lambda: s.post(recording())[0] == 200, s.process)


def test_many_requests_at_once():
    texts = [said("one_way", n).strip() for n in range(12)]
    with server(corpus() / "one_way", "--queue", 50) as s:
        got = [None] * 50
        def ask(n):
            got[n] = s.text(recording(n % 12))
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(50)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        check(got == [texts[n % 12] for n in range(50)], got)
    # Fewer places than clients: each gets its text, or is told to come again.
    long = wav_of(long_recording() * 20).read_bytes()
    with server(corpus() / "one_way", "--threads", 1, "--queue", 1) as s:
        replies = [None] * 12
        def post(n):
            replies[n] = s.post(long)
        threads = [threading.Thread(target=post, args=(n,)) for n in range(12)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        busy = [r for r in replies if r[0] == 503]
        check(busy and len(busy) < 12 and all(r[0] in (200, 503) for r in replies), [r[0] for r in replies])
        check(all(r[1]["retry-after"] == "1" for r in busy), busy[0][1])


def others_ticks(pid):
    """Ticks of processor time that threads of a process have taken, but for the first one, which receives."""
    stats = [(pathlib.Path(f"/proc/{pid}/task/{task}/stat")).read_text() for task in os.listdir(f"/proc/{pid}/task") if int(task) != pid]
    return sum(sum(map(int, stat.rsplit(")", 1)[1].split()[11:13])) for stat in stats)


def test_a_stop_lets_requests_in_hand_end():
    long = wav_of(long_recording() * 100).read_bytes()
    with server(corpus() / "both", "--threads", 1) as s:
        reply, before = [], others_ticks(s.pid)
        thread = threading.Thread(target=lambda: reply.append(s.post(long)))
        thread.start()
        wait_until(lambda: others_ticks(s.pid) > before + 5, s.process)
        err = s.stop(signal.SIGINT)
        thread.join()
        check(err == "", err)
        check(reply and reply[0][0] == 200 and len(json.loads(reply[0][2])["text"]) > 1000, reply)
    with server(corpus() / "one_way") as s:
        socket = WebSocket(s.port)
        socket.send({"rate": RATE})
        socket.send(raw_of(recording()))
        s.stop()
        got = list(socket.messages())
        check("being stopped" in got[-1]["error"]["message"], got)


def test_lines_of_images():
    with folder() as root:
        line_corpus(root)
        lines = sorted((root / "scans").glob("*/*.png"))
        write_manifest(root / "train.jsonl", [{"image_filepath": str(p), "text": p.with_name(p.stem + ".gt.txt").read_text().strip()} for p in lines])
        for part in ("dev", "test"):
            shutil.copy(root / "train.jsonl", root / f"{part}.jsonl")
        train(root, root / "lines", "training.epochs=20", base=LINES)
        image = lines[0]
        text = run("transcribe", root / "lines", image)[0].rstrip("\n")
        with server(root / "lines") as s:
            model = s.json("/v1/models")["data"][0]
            check(model["reads"] == "images" and not model["streams"], model)
            post = lambda file, *fields: s.post(file, *fields, path="/v1/images/transcriptions", name=image.name)
            check(json.loads(post(image.read_bytes())[2]) == {"text": text}, text)
            check(post(image.read_bytes(), ("response_format", "text"))[2].decode() == text + "\n")
            s.error(400, image.name, reply=post(image.read_bytes()[:100]))
            s.error(400, "expected one of json, text", reply=post(image.read_bytes(), ("response_format", "srt")))
            s.error(400, "reads images of lines", reply=s.post(recording()))
            refused(s, 400, "images")


def test_a_run_is_watched():
    with server("--run", corpus() / "one_way") as s:
        check(s.json("/v1/models")["data"] == [])
        s.error(404, "there is no model", reply=s.post(recording()))
        refused(s, 404, "there is no model")
        entries = [json.loads(line) for line in (corpus() / "one_way" / "log.jsonl").read_text().splitlines()]
        got = s.json("/v1/run")
        check(got["entries"] == entries and got["next"] == (corpus() / "one_way" / "log.jsonl").stat().st_size, got["next"])
        check(s.json(f"/v1/run?from={got['next']}") == {"from": got["next"], "next": got["next"], "entries": []})
        s.error(400, "from is 'x'", reply=s.get("/v1/run?from=x"))
        s.error(400, "from is '-1'", reply=s.get("/v1/run?from=-1"))
        check(s.json("/v1/run?from=999999999")["entries"] == entries)  # another, shorter log
    with folder() as root, server("--run", root) as s:
        check(s.json("/v1/run") == {"from": 0, "next": 0, "entries": []})
        (root / "log.jsonl").write_text('{"event":"step","step":1}\nno json\n{"event":"st')
        got = s.json("/v1/run")
        check(got["entries"] == [{"event": "step", "step": 1}] and got["next"] == 34, got)
        (root / "log.jsonl").write_text('{"event":"step","step":1}\nno json\n{"event":"step","step":2}\n')
        check(s.json("/v1/run?from=34")["entries"] == [{"event": "step", "step": 2}])


def test_what_it_does_not_serve():
    with server(corpus() / "one_way") as s:
        model = corpus() / "one_way"
        fails("serve", model, "--port", s.port, errs=[f"port {s.port} of 127.0.0.1 cannot be listened on: Address already in use", "--port"])
        run("serve", code=2, errs="nothing to serve")
        run("serve", model, "--address", "0.0.0.0", code=2, errs=["takes a token", "--token-file"])
        fails("serve", model, "--address", "192.0.2.1", "--port", 0, errs="192.0.2.1 cannot be listened on", env={**os.environ, "RONDO_TOKEN": "t"})
        fails("serve", model, "--address", "nonsense", env={**os.environ, "RONDO_TOKEN": "t"}, errs="is no address")
        fails("serve", model, "--run", model / "nowhere", errs="is no folder")
        fails("serve", model / "nowhere", errs="nowhere")
        with folder() as root:
            (root / "empty").write_text("\n")
            fails("serve", model, "--token-file", root / "empty", errs="holds no token")
            feature_corpus(root, "classify")
            train(root, root / "run", "training.epochs=1", "task=classify", base=READY)
            fails("serve", root / "run", "--port", 0, errs="is not a ctc model")
    run("serve", "--help", says=["--token-file", "/v1/audio/transcriptions"])


if __name__ == "__main__":
    try:
        main(globals())
    finally:
        if made:
            shutil.rmtree(made["root"], ignore_errors=True)
