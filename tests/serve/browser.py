"""browser.py RONDO [SCREENSHOTS]: the page of `rondo serve` in a headless Chromium, whose microphone plays a file.

It is steered by the DevTools protocol. Exit status 77 where there is no Chromium (Debian: chromium). Screenshots go to
the folder that is named.
"""

import base64
import contextlib
import http.client
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from cli_support import *  # noqa: E402
from line_images import LINES, line_corpus  # noqa: E402
from serve_support import server  # noqa: E402
from websocket import WebSocket  # noqa: E402

SCREENSHOTS = pathlib.Path(sys.argv.pop(2)) if len(sys.argv) > 2 and "/" in sys.argv[2] else None
PROGRAM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
made = {}


class Page:
    """A page in a browser of its own."""

    def __init__(self, root, url, sound):
        if not PROGRAM:
            raise Skip("there is no Chromium (Debian: chromium)")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--window-size=1000,900",
                 "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
                 f"--use-file-for-fake-audio-capture={sound}%noloop", "--remote-debugging-port=0", f"--user-data-dir={root}/browser"]
        self.errors, self.number = [], 0
        self.process = start(*flags, "about:blank", program=PROGRAM, stderr=(root / "chromium.log").open("w"))
        port_file = root / "browser" / "DevToolsActivePort"
        wait_until(lambda: port_file.exists() and len(port_file.read_text().split()) == 2, self.process, pause=0.1)
        self.port = int(port_file.read_text().split()[0])
        wait_until(lambda: self.target() is not None, self.process, pause=0.1)
        self.socket = WebSocket(self.port, self.target(), timeout=TIMEOUT)
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && typeof begin === 'function'")

    def target(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/json/list")
            pages = [t for t in json.loads(connection.getresponse().read()) if t["type"] == "page"]
            return pages[0]["webSocketDebuggerUrl"].split(str(self.port), 1)[1] if pages else None

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send({"id": self.number, "method": method, "params": parameters})
        for message in self.socket.messages():
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
            if message.get("id") == self.number:
                check("error" not in message, method, message)
                return message["result"]
        raise AssertionError("the browser has gone")

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        check("exceptionDetails" not in result, expression, result)
        return result["result"].get("value")

    def wait(self, expression):
        wait_until(lambda: self.value(expression), self.process, pause=0.1)

    def shoot(self, name):
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            (SCREENSHOTS / f"{name}.png").write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextlib.contextmanager
def page(url, sound):
    with folder() as root:
        opened = Page(root, url, sound)
        try:
            yield opened
        finally:
            opened.close()


def corpus():
    if not made:
        if not PROGRAM:
            raise Skip("there is no Chromium (Debian: chromium)")
        root = made["root"] = pathlib.Path(tempfile.mkdtemp(prefix="rondo-browser-"))
        (root / "data").mkdir()
        tone_corpus(root / "data")
        train(root / "data", root / "one_way", "training.epochs=30", "model.bidirectional=false", "features.cmvn=global", base=TONE)
        train(root / "data", root / "both", "training.epochs=8", base=TONE)
        rng = random.Random(5)
        noise = lambda seconds: array.array("h", (rng.randrange(-60, 61) for _ in range(int(RATE * seconds))))
        write_wav(root / "spoken.wav", noise(2) + tone_samples("abcab", rng) + noise(2) + tone_samples("ccba", rng) + noise(6))
    return made["root"]


def letters(text):
    return "".join(text.split())


def test_a_microphone_is_heard_while_it_speaks():
    root = corpus()
    with server(root / "one_way", "--run", root / "one_way") as s, page(f"http://127.0.0.1:{s.port}/", root / "spoken.wav") as p:
        p.wait("!$('speech').hidden && !$('run').hidden")
        p.value("$('record').click()")
        p.wait("$('partial').textContent.includes('a')")
        p.shoot("listening")
        p.wait("$('final').textContent.replaceAll(' ', '').endsWith('abcab\\nccba\\n')")
        p.value("$('record').click()")
        p.wait("$('record').textContent === 'Start'")
        heard = [letters(line) for line in p.value("$('final').textContent").split("\n") if line.strip()]
        # The microphone may begin with a click, which this model takes for a letter.
        check(heard[-2:] == ["abcab", "ccba"] and len(heard) <= 3, heard)
        check(p.value("$('trouble').hidden"), p.value("$('trouble').textContent"))
        check(p.value("document.querySelectorAll('#charts svg').length") == 3)
        check(p.value("document.querySelectorAll('#charts polyline').length") >= 5)
        check("ended" in p.value("$('run_state').textContent"))
        p.shoot("speech_and_run")
        check(not p.errors, p.errors)


def test_a_model_that_cannot_stream_gets_the_recording():
    root = corpus()
    with server(root / "both") as s, page(f"http://127.0.0.1:{s.port}/", root / "spoken.wav") as p:
        p.wait("!$('speech').hidden")
        check("as a whole" in p.value("$('state').textContent"))
        check(p.value("$('run').hidden"))
        p.value("$('record').click()")
        p.wait("$('record').textContent === 'Stop'")
        time.sleep(7)  # the time that the file plays, which is not the server's
        p.value("$('record').click()")
        p.wait("$('record').textContent === 'Start'")
        heard = letters(p.value("$('final').textContent"))
        check(heard.endswith("abcabccba") and len(heard) <= 10, heard)  # a click, again
        # What the page asks for and does not get is told as an error of the console, too.
        check(all("404" in str(e) for e in p.errors), p.errors)


def test_a_token_is_asked_for_and_a_file_is_read():
    root = corpus()
    text = run("transcribe", root / "one_way", root / "data/dev000.wav")[0].strip()
    with server(root / "one_way", environment={"RONDO_TOKEN": "s3cret"}) as s, page(f"http://127.0.0.1:{s.port}/", root / "spoken.wav") as p:
        p.wait("!$('token_row').hidden")
        check("token" in p.value("$('trouble').textContent") and p.value("$('speech').hidden"))
        p.value("$('token').value = 's3cret'; $('token').dispatchEvent(new Event('change'))")
        p.wait("!$('speech').hidden && $('trouble').hidden")
        document = p.call("DOM.getDocument")["root"]["nodeId"]
        node = p.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
        p.call("DOM.setFileInputFiles", nodeId=node, files=[str(root / "data/dev000.wav")])
        p.wait("$('file_text').textContent")
        check(p.value("$('file_text').textContent") == text, text)
        p.value("$('record').click()")
        p.wait("$('final').textContent.replaceAll(' ', '').endsWith('abcab\\n')")
        p.call("DOM.setFileInputFiles", nodeId=node, files=[str(root / "data/dev.jsonl")])
        p.wait("!$('trouble').hidden")
        check("dev.jsonl" in p.value("$('trouble').textContent"), p.value("$('trouble').textContent"))
        p.shoot("trouble")


def test_lines_of_images():
    with folder() as root:
        line_corpus(root, books=2)
        lines = sorted((root / "scans").glob("*/*.png"))
        write_manifest(root / "train.jsonl", [{"image_filepath": str(p), "text": p.with_name(p.stem + ".gt.txt").read_text().strip()} for p in lines])
        for part in ("dev", "test"):
            shutil.copy(root / "train.jsonl", root / f"{part}.jsonl")
        train(root, root / "lines", "training.epochs=15", base=LINES)
        text = run("transcribe", root / "lines", lines[0])[0].rstrip("\n")
        with server(root / "lines") as s, page(f"http://127.0.0.1:{s.port}/", corpus() / "spoken.wav") as p:
            p.wait("!$('files').hidden")
            check(p.value("$('speech').hidden") and "image" in p.value("$('files_title').textContent"))
            document = p.call("DOM.getDocument")["root"]["nodeId"]
            node = p.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
            p.call("DOM.setFileInputFiles", nodeId=node, files=[str(lines[0])])
            p.wait("$('file_state').textContent.endsWith('s')")
            check(p.value("$('file_text').textContent") == text.rstrip(), text)


if __name__ == "__main__":
    try:
        main(globals())
    finally:
        if made:
            shutil.rmtree(made["root"], ignore_errors=True)
