"""What rondo eval tells of errors: the page of --report, also in a browser, the edits of --hypotheses, intervals."""

import array
import base64
import functools
import html.parser
import io
import wave

from cli_support import *

HOSTILE = "<script>alert(\"x\")</script> & 'b' \u0001 </article> \u05d0\u05d1"
VOID = {"meta", "br", "img"}


class Page(html.parser.HTMLParser):
    """Elements with their attributes, the text of each, and whether tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        check(not self.open, "not closed:", self.open)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        check(self.open and self.open.pop() == tag, "closes what is not open:", tag)

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def count(self, tag):
        return sum(t == tag for t, _ in self.elements)


def check_alone(page):
    """Nothing from outside, nothing that runs."""
    for tag, attributes in page.elements:
        check(tag not in ("script", "link", "iframe", "object", "form"), tag)
        for name, value in attributes.items():
            check(not name.startswith("on") and name not in ("href", "srcset", "data"), tag, name, value)
            check(name != "src" or value.startswith(("data:audio/wav;base64,", "data:image/png;base64,")), value)


def sounds(page):
    """Of the page's players: rate and samples."""
    found = []
    for tag, attributes in page.elements:
        if tag != "audio":
            continue
        with wave.open(io.BytesIO(base64.b64decode(attributes["src"].split(",")[1]))) as wav:
            check(wav.getnchannels() == 1 and wav.getsampwidth() == 2, wav.getparams())
            found.append((wav.getframerate(), wav.readframes(10 ** 9)))
    return found


@functools.cache
def place():
    directory = tempfile.TemporaryDirectory(prefix="rondo eval ")
    root = pathlib.Path(directory.name)
    tone_corpus(root)
    # Long enough to write something, too short to write it right.
    train(root, root / "run", "training.max_steps=40", base=TONE)
    lines = [json.loads(line) for line in (root / "dev.jsonl").read_text().splitlines()]
    lines[3]["text"], lines[5]["text"], lines[5]["speaker"] = HOSTILE, "", "<i>"
    write_manifest(root / "hostile.jsonl", lines)
    return directory, root


def root_of_place():
    return place()[1]


def report(root, manifest, *words, **more):
    out, _ = run("eval", root / "run", root / manifest, "--report", root / "r.html", *words, **more)
    return out, (root / "r.html").read_text()


def test_the_page():
    root = root_of_place()
    out, text = report(root, "hostile.jsonl", "--json")
    said, page = json.loads(out)["all"], Page(text)
    check_alone(page)
    check(said["substitutions"] + said["insertions"] + said["deletions"] > 5, "too good a model for this test", said)
    low, high = said["wer_interval"]
    check(0 <= low < said["wer"] < high, said)
    check(0 <= said["cer_interval"][0] < said["cer"] < said["cer_interval"][1], said)
    for part in (f"{100 * said['wer']:.2f}%", f"95% interval {100 * low:.2f}% to {100 * high:.2f}%",
                 f"{said['substitutions']} substituted, {said['insertions']} inserted, {said['deletions']} deleted",
                 "By speaker", "By length of the recording", "Confused words", "Worst utterances",
                 "error rate", "updates", "dev003.wav, s1, ", HOSTILE.split()[0], "<i>"):
        check(part in page.text, part, "is not in", page.text)
    check(page.count("svg") == 1 and page.count("article") > 5, text)
    for part in ("kept model", "Settings of the run", "max_steps = 40", "40 updates, dev WER", "WER without punctuation"):
        check(part in page.text, part, "is not in", page.text)
    check(f"{100 * said['wer_without_punctuation']:.2f}%" in page.text, said)
    # The same page again, byte for byte; without the run's folder it has no curve.
    check(report(root, "hostile.jsonl")[1] == text, "another page")
    run("eval", root / "run" / "model.safetensors", root / "dev.jsonl", "--report", root / "r.html")
    check("<svg" not in (root / "r.html").read_text(), "a curve of what run?")


def test_sounds_of_the_worst():
    root = root_of_place()
    page = Page(report(root, "hostile.jsonl")[1])
    check(page.count("audio") == page.count("article"), page.elements)
    names = re.findall(r"dev\d+\.wav(?=, s1|, s0|, <i>)", page.text)
    check(len(names) == page.count("audio"), names)
    for name, (rate, samples) in zip(names, sounds(page), strict=True):
        with wave.open(str(root / name)) as wav:
            check(rate == wav.getframerate(), rate)
            # The sound itself, but for its rounding.
            one, other = array.array("h", samples), array.array("h", wav.readframes(10 ** 9))
            check(len(one) == len(other) and max(abs(a - b) for a, b in zip(one, other)) <= 1, name)
    # Of a long one the first 15 seconds; of an utterance within a recording that part.
    said = tone_samples("a b c", random.Random(1))
    silence = array.array(said.typecode, [0] * RATE)
    write_wav(root / "long.wav", silence * 3 + said + silence * 17)
    write_manifest(root / "long.jsonl", [{"audio_filepath": "long.wav", "text": "b b b b b b"},
                                         {"audio_filepath": "long.wav", "text": "c c c c", "offset": 3.0, "duration": 0.5}])
    page = Page(report(root, "long.jsonl")[1])
    check([len(samples) / 2 / rate for rate, samples in sounds(page)] == [15.0, 0.5], page.text)
    check(page.text.count("the first 15 s can be heard") == 1, page.text)
    check(any(sounds(page)[1][1]), "the part is silent")


def test_two_runs():
    root = root_of_place()
    train(root, root / "other", "training.max_steps=90", "data.test=", base=TONE)
    out, _ = run("eval", root / "run", root / "other", root / "hostile.jsonl", "--json", "--report", root / "r.html")
    said, text = json.loads(out), (root / "r.html").read_text()
    page = Page(text)
    check_alone(page)
    one, other, difference = (said[key] for key in ("first", "second", "difference"))
    for key, model in (("first", "run"), ("second", "other")):
        alone = json.loads(run("eval", root / model, root / "hostile.jsonl", "--json")[0])
        check(said[key]["all"] == alone["all"], "as one evaluation alone has it", said[key], alone)
    for rate in ("wer", "cer"):
        check(math.isclose(difference[rate], other["all"][rate] - one["all"][rate], abs_tol=1e-12), difference)
        low, high = difference[rate + "_interval"]
        check(low <= difference[rate] <= high and low < high, difference)
        check(f"{100 * low:+.2f} to {100 * high:+.2f}" in page.text, difference)
    for part in ("training.max_steps: 40 -> 90", "kept model", HOSTILE.split()[0], f"{100 * other['all']['wer']:.2f}%"):
        check(part in page.text, part, page.text)
    check(page.count("svg") == 2 and "that became better" in page.text, page.text)
    check(page.count("audio") == page.count("article") > 0, text)
    # Without a manifest: the test data of the first one's run, else what it was validated on.
    for first, second, data in (("run", "other", "test.jsonl"), ("other", "run", "dev.jsonl")):
        found = json.loads(run("eval", root / first, root / second, "--json")[0])["first"]["manifest"]
        check(found.endswith(data), found)
    run("eval", root / "run", root / "run", says="WER +0.00 points, 95% interval +0.00 to +0.00")
    pair = ("eval", root / "run", root / "other", root / "dev.jsonl")
    run(*pair, "--group-by", "speaker", code=2, errs="go with one model")
    run("eval", root / "run", root / "dev.jsonl", root / "dev.jsonl", code=2, errs="is no second model to compare")
    fails(*pair, "--report", root / "other" / "log.jsonl", errs="would overwrite a file of the model")
    with folder() as numbers:
        feature_corpus(numbers, "regress")
        train(numbers, numbers / "run", "task=regress", "training.max_steps=3")
        fails("eval", numbers / "run", numbers / "run", numbers / "dev.jsonl", errs="there is no text to compare")


def test_edits_of_hypotheses():
    root = root_of_place()
    out, _ = run("eval", root / "run", root / "hostile.jsonl", "--hypotheses", root / "h.jsonl", "--json")
    said, counts = json.loads(out)["all"], {"=": 0, "s": 0, "i": 0, "d": 0}
    for line in map(json.loads, (root / "h.jsonl").read_text().splitlines()):
        reference, hypothesis = line["reference"].split(), line["hypothesis"].split()
        check([e[1] for e in line["edits"] if e[0] != "i"] == reference, line)
        check([e[2] for e in line["edits"] if e[0] != "d"] == hypothesis, line)
        for kind, wanted, got in line["edits"]:
            counts[kind] += 1
            check({"=": wanted == got, "s": wanted != got and None not in (wanted, got), "i": wanted is None,
                   "d": got is None}[kind], line)
        errors = sum(kind != "=" for kind, _, _ in line["edits"])
        if reference:
            check(math.isclose(line["wer"], errors / len(reference)) and line["cer"] >= 0, line)
        else:
            check(line["wer"] is None and line["cer"] is None, line)
    check([counts["s"], counts["i"], counts["d"]] ==
          [said["substitutions"], said["insertions"], said["deletions"]], counts, said)


def test_what_is_printed_of_errors():
    root = root_of_place()
    out, _ = run("eval", root / "run", root / "dev.jsonl", "--hypotheses", root / "h.jsonl")
    *_, confused, worst = out.splitlines()
    check(re.fullmatch(r"most confused: (\S+ as \S+ \(\d+\)(, |$)){1,5}", confused), out)
    check(re.fullmatch(r"worst utterance: .*dev\.jsonl:\d+, dev\d+\.wav, s\d, \S+ s \(\d+ errors? in \d+ words?\)", worst), out)
    # Where the model is always right: references are what it wrote.
    lines = [json.loads(line) for line in (root / "dev.jsonl").read_text().splitlines()]
    for line, written in zip(lines, (root / "h.jsonl").read_text().splitlines(), strict=True):
        check(json.loads(written)["id"] == line["audio_filepath"], written)
        line["text"] = json.loads(written)["hypothesis"]
    write_manifest(root / "right.jsonl", [line for line in lines if line["text"]])
    out, text = report(root, "right.jsonl", says="WER 0.00%", not_says="worst utterance")
    check("confused" not in out.lower() and "no error seen" in Page(text).text, out)


def test_other_tasks():
    for kind, settings, parts in (("classify", ["task=classify"], ["Error", "Confused classes", "all"]),
                                  ("regress", ["task=regress"], ["Loss", "Worst utterances", "answer"])):
        with folder() as root:
            feature_corpus(root, kind)
            train(root, root / "run", *settings, "training.max_steps=3")
            out, text = report(root, "dev.jsonl", "--json")
            page = Page(text)
            check_alone(page)
            for part in parts:
                check(part in page.text, part, page.text)
            check("Word error rate" not in page.text and "most confused" not in out, out)
            if kind == "classify":
                said = f"{100 * json.loads(out)['error']:.2f}%"
                check(said in page.text, said, page.text)
                cells = [int(n) for n in re.findall(r'<td(?: class="right")?>(\d+)</td>', text)]
                check(sum(cells) == 2 * 12, "the matrix and its sums:", cells)


def test_the_card_of_a_model():
    with folder() as root:
        tone_corpus(root, train=6, dev=3)
        out, _ = train(root, root / "run", "training.epochs=1", "--json", base=TONE)
        last = json.loads(out.splitlines()[-1])
        validation = log_of(root / "run", "validation")[-1]
        check(last["run"] == str(root / "run") and last["steps"] == validation["step"] and not last["stopped"], last)
        check(last["epochs"] == 1 and last["best"] == validation[last["metric"]], last, validation)
        rates, _ = run("eval", root / "run", root / "dev.jsonl", "--json")
        (root / "rates.json").write_text(rates)
        rates = json.loads(rates)["all"]
        card, err = run("card", root / "run", "--test", root / "rates.json", "--language", "en", "--license", "mit",
                        "--name", 'tones "and" noise: 1')
        front, text = card.split("---\n")[1:]
        for line in ('language: "en"', 'license: "mit"', "pipeline_tag: automatic-speech-recognition",
                     '- name: "tones \\"and\\" noise: 1"', '      name: "dev.jsonl"', "    - type: wer",
                     f"      value: {100 * rates['wer']:.2f}"):
            check(line in front.splitlines(), line, front)
        for part in ("3 utterances", "6 utterances", "`a` `b` `c`", f"WER {100 * rates['wer']:.2f} %", "[optimizer]",
                     "sound of 8000 Hz"):
            check(part in text, part, text)
        check(err == "", err)
        (root / "train.jsonl").unlink()
        run("card", root / "run", says="| `train.jsonl` | not at hand")
        for wrong in ("{", "[]", '{"model": 1}', '{"model": "m", "manifest": "x", "utterances": 1}'):
            (root / "rates.json").write_text(wrong)
            fails("card", root / "run", "--test", root / "rates.json", errs=["rates.json: ", "eval --json"],
                  lines=1 + ('"m"' in wrong))
        fails("card", root / "nowhere", errs="nowhere")


def test_a_page_that_cannot_be_written():
    root = root_of_place()
    for file, sentence in ((root / "dev.jsonl", "--report: '{}' would overwrite the manifest"),
                           (root / "dev001.wav", "--report: '{}' would overwrite the recording"),
                           (root / "run" / "log.jsonl", "--report: '{}' would overwrite a file of the model"),
                           (root / "none" / "r.html", "{}"), (root, "{}")):
        fails("eval", root / "run", root / "dev.jsonl", "--report", file, errs=sentence.format(file))
    fails("eval", root / "run", root / "dev.jsonl", "--report", root / "x", "--hypotheses", root / "x",
          errs="would both be written to")


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise Skip("there is no Chromium to view the page with")


def view(root, file, *words):
    """What the browser writes to stdout, and the lines of its console."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={root}/profile", "--enable-logging=stderr", "--hide-scrollbars", *words,
               file.as_uri()]
    process = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True, cwd=root)
    return process.stdout.decode(), re.findall(r".*CONSOLE.*", process.stderr.decode(errors="replace"))


def check_same(found, expected):
    for i, (one, other) in enumerate(zip(found, expected)):
        check(one == other, "at", i, found[max(0, i - 5):i + 5], "instead of", expected[max(0, i - 5):i + 5])
    check(len(found) == len(expected), "ends with", found[-5:], "instead of", expected[-5:])


def test_in_a_browser():
    browser()
    root = root_of_place()
    _, text = report(root, "hostile.jsonl")
    dom, console = view(root, root / "r.html", "--dump-dom")
    check(console == [], console)
    page, written = Page(dom), Page(text)
    check_alone(page)
    # What the browser understands is what was written.
    check_same([t for t, _ in page.elements], [t for t, _ in written.elements])
    check_same(page.text.split(), written.text.split())
    check(HOSTILE.split()[0] in page.text, page.text)
    for width, height, more in ((1100, 2000, []), (1100, 2000, ["--force-dark-mode"]), (500, 2000, [])):
        picture = root / "page.png"
        _, console = view(root, root / "r.html", f"--screenshot={picture}", f"--window-size={width},{height}", *more)
        check(console == [], console)
        png = picture.read_bytes()
        check(struct.unpack(">II", png[16:24]) == (width, height) and len(png) > 20000, width, len(png))
    # This test hears a console: the policy of the page lets no script run.
    (root / "bad.html").write_text(text.replace("<main>", "<main><script>document.title='x'</script>"))
    dom, console = view(root, root / "bad.html", "--dump-dom")
    check(len(console) == 1 and "Content Security Policy" in console[0], console)
    check("<title>x</title>" not in dom, dom)


main(globals())
