"""`rondo prepare` says what it finds: recordings as people have them, edited manifests, other programs' formats."""

from cli_support import *

FFMPEG = """#!/bin/sh
# Stands for ffmpeg: prints the WAV that lies behind the first sixteen bytes of its input.
while [ $# -gt 0 ]; do [ "$1" = -i ] && input="${2#file:}"; shift; done
grep -q broken "$input" && { echo "moov atom not found" >&2; exit 1; }
exec tail -c +17 "$input"
"""


def noise(seconds=1.0, rate=RATE, low=False, seed=3):
    """Samples of -1 to 1; low: nothing in the upper half of the band, by halving the rate and back."""
    rng = random.Random(seed)
    x = [rng.uniform(-0.5, 0.5) for _ in range(int(seconds * rate))]
    if not low:
        return x
    taps = [math.sin(math.pi * k / 2) / (math.pi * k) if k else 0.5 for k in range(-60, 61)]
    window = [0.42 - 0.5 * math.cos(2 * math.pi * i / 120) + 0.08 * math.cos(4 * math.pi * i / 120) for i in range(121)]
    taps = [t * w for t, w in zip(taps, window, strict=True)]
    for _ in range(2):
        x = [sum(t * x[n + i] for i, t in enumerate(taps)) for n in range(len(x) - 121)]
    return x


def sound(path, samples, rate=RATE, channels=1, kind="int"):
    """A WAV of interleaved samples: 16-bit integers, or floats as they are."""
    tag, width = (1, 2) if kind == "int" else (3, 4)
    numbers = [max(-32768, min(32767, round(32767 * x))) for x in samples] if kind == "int" else samples
    data = array.array("h" if kind == "int" else "f", numbers).tobytes()
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, tag, channels, rate,
                       rate * channels * width, channels * width, 8 * width, b"data", len(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + data)
    return path


def with_text(path, text="a b"):
    path.with_suffix(".txt").write_text(text)
    return path


def with_path(*folders):
    return {**os.environ, "PATH": os.pathsep.join(map(str, folders))}


def paths_of(manifest):
    return sorted(json.loads(line)["audio_filepath"] for line in manifest.open())


def test_formats_that_ffmpeg_decodes():
    with folder() as root:
        data, tools, empty = root / "data", root / "bin", root / "empty"
        data.mkdir(), tools.mkdir(), empty.mkdir()
        for name in ("a.wav", "b.wav", "c.wav"):
            with_text(sound(data / name, noise(0.5)))
        wav = (data / "a.wav").read_bytes()
        mp4 = struct.pack(">I", 32) + b"ftypM4A " + bytes(4)
        for name in ("-rf 'x'.m4a", "called.wav", "http:x.m4a", "no ending"):
            with_text(data / name).write_bytes(mp4 + wav)
        with_text(data / "broken.webm").write_bytes(b"\x1a\x45\xdf\xa3 broken")
        out, _ = run("prepare", "folder", data, root / "none", "--dev", 0, "--test", 0, env=with_path(empty),
                     says=["left out, that only ffmpeg can decode: 5 of 8", "ffmpeg is not on PATH",
                           f"convert it: ffmpeg -i {data}/called.wav {data}/called.new.wav",
                           "MPEG-4 (m4a, mp4, 3gp, mov)", "8 utterances found, 3 used, 5 left out"])
        (tools / "ffmpeg").write_text(FFMPEG)
        (tools / "ffmpeg").chmod(0o755)
        env = with_path(tools, "/usr/bin", "/bin")
        run("prepare", "folder", data, root / "mine", "--dev", 0, "--test", 0, env=env,
            says=["left out, that only ffmpeg can decode: 1 of 8", "broken.webm", "moov atom not found",
                  "warning, decoded by ffmpeg, anew whenever they are read: 4 of 8"])
        check(len(paths_of(root / "mine" / "train.jsonl")) == 7, "not all are used")
        fails("prepare", "folder", data, root / "strict", "--strict", env=env, lines=2, errs=["1 that only ffmpeg can decode"])
        check(not (root / "strict").exists(), "left behind")
        # The same where a model is trained and used.
        settings = ["data.dev=", "data.test=", "training.max_steps=1"]
        train(root / "mine", root / "run", *settings, base=TONE, env=env)
        model = root / "run"
        text = run("transcribe", model, data / "a.wav", env=env)[0]
        for name in ("-rf 'x'.m4a", "called.wav"):
            check(run("transcribe", model, data / name, env=env)[0] == text, name)
        check(run("transcribe", model, "-", stdin=mp4 + wav, env=env)[0] == text, "standard input")
        fails("transcribe", model, data / "called.wav", env=with_path(empty), errs=["called.wav: is MPEG-4", "not on PATH"])


def test_a_signal_ends_it_soon():
    with folder() as root:
        data, tools = root / "data", root / "bin"
        data.mkdir(), tools.mkdir()
        for i in range(30):
            with_text(data / f"{i}.m4a").write_bytes(struct.pack(">I", 32) + b"ftypM4A ")
        (tools / "ffmpeg").write_text(f"#!/bin/sh\necho > {root}/began\nexec sleep 600\n")
        (tools / "ffmpeg").chmod(0o755)
        process = start("prepare", "folder", data, root / "mine", env=with_path(tools, "/usr/bin", "/bin"))
        wait_until((root / "began").exists, process)
        process.send_signal(signal.SIGTERM)
        out, err = output_of(process, TIMEOUT)
        check(process.returncode == 128 + signal.SIGTERM, process.returncode, out, err)
        check("stopped by a signal" in err and not list(root.glob("mine*")), err)


def test_formats_by_ffmpeg_itself():
    if not shutil.which("ffmpeg"):
        raise Skip("no ffmpeg")
    with folder() as root:
        data = root / "data"
        with_text(sound(data / "a.wav", noise(0.5)))
        for name, more in (("-b.m4a", []), ("c.aac", []), ("d.webm", []), ("e.wav", ["-f", "mp4", "-c:a", "aac"]),
                           ("f.caf", ["-c:a", "pcm_s16le"])):
            subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", "-i", data / "a.wav", "-ar", "16000", *more,
                            f"file:{data / name}"], check=True)
            with_text(data / name)
        run("prepare", "folder", data, root / "mine", "--dev", 0, "--test", 0, says="6 utterances found, 6 used\n")
        for line in (root / "mine" / "train.jsonl").open():
            check(0.45 < json.loads(line)["duration"] < 0.65, line)


def test_what_is_heard():
    with folder() as root:
        data = root / "data"
        good = noise(1)
        both = [y for x in good for y in (x, -x)]
        for name, samples, more in [
                ("good", good, {}), ("silent", [0.0] * RATE, {}), ("constant", [0.25] * RATE, {}),
                ("opposite", both, {"channels": 2}), ("nan", [0.1, math.nan] * 4000, {"kind": "float"}),
                ("inf", [0.1, math.inf] * 4000, {"kind": "float"}),
                ("integers", [32768 * x for x in good], {"kind": "float"}),
                ("shifted", [0.4 + x for x in good], {}), ("clipped", [max(-0.3, min(0.3, x)) * 3 for x in good], {}),
                ("faint", [x / 2000 for x in good], {}), ("narrow", noise(1, 2 * RATE, low=True), {"rate": 2 * RATE})]:
            with_text(sound(data / f"{name}.wav", samples, **more))
        whole = with_text(sound(data / "cut.wav", good)).read_bytes()
        (data / "cut.wav").write_bytes(whole[:RATE])
        out, _ = run("prepare", "folder", data, root / "mine", "--dev", 0, "--test", 0)

        def told(title, name):
            lines = out.splitlines()
            at = next((i for i, line in enumerate(lines) if line.startswith(title)), None)
            check(at is not None and any(f"{name}.wav: " in line for line in lines[at + 1:at + 3]), title, name, "\n" + out)
        told("left out, silent: 2 of 12", "silent")
        told("left out, silent: 2 of 12", "constant")
        told("left out, with channels that cancel each other out: 1 of 12", "opposite")
        told("left out, with samples that are no numbers: 2 of 12", "nan")
        told("left out, with samples that are no numbers: 2 of 12", "inf")
        told("left out, cut off: 1 of 12", "cut")
        told("warning, integers written as floats: 1 of 12", "integers")
        told("warning, far from zero on average: 1 of 12", "shifted")
        told("warning, clipped: 1 of 12", "clipped")
        told("warning, hardly anything is heard: 1 of 12", "faint")
        told("warning, made from a lower rate: 1 of 12", "narrow")
        check("12 utterances found, 6 used, 6 left out" in out and "sample rates: " in out, out)
        check(f"train with rondo train {root}/mine/train.toml data={root}/mine\n" in out, out)
        check(f"rate = {RATE} " in (root / "mine" / "train.toml").read_text())
        settings, _ = run("train", root / "mine" / "train.toml", f"data={root}/mine", "--print-config")
        check(f"rate = {RATE}\n" in settings, settings)
        # One of the channels is as good as any.
        run("prepare", "folder", data, root / "left", "--channel", "left", "--dev", 0, "--test", 0, not_says="cancel",
            says="12 utterances found, 7 used")
        lines = [json.loads(line) for line in (root / "left" / "train.jsonl").open()]
        check([line.get("channel") for line in lines if "opposite" in line["audio_filepath"]] == [0], lines)
        check([line.get("channel") for line in lines if "good" in line["audio_filepath"]] == [None], lines)
        run("prepare", "folder", data, root / "mine", "--salvage", "--dev", 0, "--test", 0,
            says=["warning, cut off, and used as far as they go: 1 of 12", "12 utterances found, 7 used"])
        salvaged = [json.loads(line) for line in (root / "mine" / "train.jsonl").open() if "salvaged" in line]
        check(len(salvaged) == 1 and abs(salvaged[0]["duration"] - 0.497) < 0.01, salvaged)
        # The headers alone tell nothing of the samples.
        out, _ = run("prepare", "folder", data, root / "heads", "--examine", "headers", "--dev", 0, "--test", 0,
                     says=["12 utterances found, 11 used", "decoded: 0 of 12"])
        check("silent" not in out.split("found")[0], out)
        run("prepare", "folder", data, root / "x", "--channel", "middle", code=2, errs="expected left, right, mix or a number from 0")


def test_rates_that_are_not_the_models():
    with folder() as root:
        tone_corpus(root, train=12, dev=3)
        wide = [*TONE, f"features.rate={2 * RATE}"]
        _, err = train(root, root / "run", "training.max_steps=1", base=wide)
        check(f"12 of 12 recordings have less than {2 * RATE} Hz" in _ + err, err)
        out, err = train(root, root / "own", "training.max_steps=1", base=TONE)
        check("less than" not in out + err and "as if made from" not in out + err, err)
        recording = sound(root / "narrow.wav", noise(1, 16000, low=True), 16000)
        run("transcribe", root / "own", recording, not_says="nothing above")
        run("transcribe", root / "run", recording, errs="narrow.wav: has nothing above 4")
        run("transcribe", root / "run", recording, root / "narrow.wav", errs="warning: the same of 1 more recordings\n")
        run("transcribe", root / "run", sound(root / "full.wav", noise(1, 16000), 16000), not_says="nothing above")
        train(root, root / "heard", "training.max_steps=1", "model.bidirectional=false", "features.cmvn=global", base=wide)
        run("transcribe", root / "heard", recording, "--stream", errs="narrow.wav: has nothing above 4")
        run("transcribe", root / "heard", recording, "--picture", root / "p.svg", errs="narrow.wav: has nothing above 4")
        run("transcribe", root / "heard", root / "full.wav", "--stream", not_says="nothing above")


def test_endings_in_capitals():
    """And names that say nothing: the content decides."""
    with folder() as root:
        tone_corpus(root, train=12, dev=3)
        train(root, root / "run", "training.max_steps=1", base=TONE)
        data = root / "data"
        sound(data / "A.WAV", noise(0.5, seed=1))
        (data / "A.TXT").write_text("a b")
        sound(data / "plain", noise(0.5, seed=2))
        (data / "plain.txt").write_text("a b")
        sound(data / "c.rec", noise(0.5, seed=3))
        (data / "c.txt").write_text("a b")
        run("prepare", "folder", data, root / "mine", says="3 utterances found, 3 used")
        out, _ = run("transcribe", root / "run", data)
        check([pathlib.Path(line.split("\t")[0]).name for line in out.splitlines()] == ["A.WAV", "c.rec", "plain"], out)
        subprocess.run(["tar", "cf", root / "ALL.TAR", *sorted(os.listdir(data))], cwd=data, check=True)
        run("prepare", "tar", root / "tar", root / "ALL.TAR", says="3 utterances found, 3 used")
        run("prepare", "tar", root / "tars", root, says="3 utterances found, 3 used")
        lj = root / "lj"
        sound(lj / "wavs/LJ1.WAV", noise(0.5, seed=1))
        (lj / "metadata.csv").write_text("LJ1|a b|a b\n")
        run("prepare", "ljspeech", lj, root / "ljs", "--dev", 0, "--test", 0, says="1 utterance found, 1 used")
        libri = root / "libri/1/2"
        sound(libri / "1-2-0001.WAV", noise(0.5, seed=1))
        (libri / "1-2.trans.txt").write_text("1-2-0001 a b\n")
        run("prepare", "librispeech", root / "libri", root / "ls", "--dev", 0, "--test", 0, says="1 utterance found, 1 used")
        for name in ("zero", "one"):
            sound(root / "classes" / name / "A.WAV", noise(0.5, seed=1))
            sound(root / "classes" / name / "plain", noise(0.5, seed=2))
        run("prepare", "classes", root / "classes", root / "cl", "--dev", 0, "--test", 0, says="4 utterances found, 4 used")
        (root / "TABLE.TSV").write_text("file\ttext\ndata/A.WAV\ta, b\n")
        run("prepare", "csv", root / "TABLE.TSV", root / "tsv", "--audio-column", "file", "--text-column", "text", "--dev", 0,
            "--test", 0, says="1 utterance found, 1 used")


def test_edited_manifests_are_not_replaced():
    with folder() as root:
        data, mine = root / "data", root / "mine"
        for name in "abc":
            with_text(sound(data / f"{name}.wav", noise(0.5)))
        words = ["prepare", "folder", data, mine, "--dev", 0, "--test", 0]
        run(*words)
        run(*words)  # nobody has touched it
        manifest = mine / "train.jsonl"
        first = manifest.read_text()
        for edited in (first.replace("a b", "a c"), first + first.splitlines()[0] + "\n"):
            manifest.write_text(edited)
            fails(*words, errs=[f"{manifest}: was edited since it was written", "--overwrite", "train.jsonl.bak"])
            check(manifest.read_text() == edited, "it has changed")
        run(*words, "--overwrite")
        check(manifest.read_text() == first and (mine / "train.jsonl.bak").read_text() == edited, "not kept")
        manifest.write_text(first.replace("a b", "b"))
        run(*words, "--overwrite")
        run(*words)
        check((mine / "train.jsonl.bak").read_text() == edited and "b" in (mine / "train.jsonl.bak-2").read_text(), "not kept")
        (mine / "dev.jsonl").write_text(first)  # which nobody wrote for him
        fails(*words, errs="dev.jsonl: was edited")
        (mine / "dev.jsonl").unlink()
        # A corpus of before, without sums.
        about = json.loads((mine / "corpus.json").read_text())
        del about["checksums"]
        (mine / "corpus.json").write_text(json.dumps(about))
        run(*words)
        for name in ("notes.txt", "wav/mine.wav", "lines/1.png"):
            (mine / name).parent.mkdir(exist_ok=True)
            (mine / name).write_text("precious")
            fails(*words, "--overwrite", errs=f"holds '{name}', which is no part of the corpus")
            check((mine / name).read_text() == "precious", name)
            (mine / name).unlink()


def test_one_bad_entry_ends_no_import():
    with folder() as root:
        data = root / "data"
        for i in range(4):
            with_text(sound(data / f"{i}.wav", noise(0.5, seed=i)))
        esc = "\x1b[2J"
        (root / "t.csv").write_text(f'file,text,who\ndata/0.wav,one,x\ndata/1.wav,one, two,x\n,three,x\ndata/{esc}.wav,four,x\n'
                                    'data/2.wav,"say ""no""",x\ndata/2.wav,again,x\ndata/3.wav,"open,x\n')
        out, _ = run("prepare", "csv", root / "t.csv", root / "mine", "--audio-column", "file", "--text-column", "text",
                     "--dev", 0, "--test", 0,
                     says=["left out, rows with more or fewer fields than the others: 1 of 7", "t.csv:3: has 4 fields, expected 3",
                           "left out, rows that name nothing there is: 1 of 7", "left out, rows with quotes that do not fit: 1 of 7",
                           "left out, missing or unreadable: 1 of 7", "\\x1b[2J.wav", "listed twice, with another text: 1 of 7",
                           "7 utterances found, 2 used, 5 left out"])
        check("\x1b" not in out, out)
        fails("prepare", "csv", root / "t.csv", root / "s", "--audio-column", "file", "--text-column", "text", "--strict",
              lines=6, errs=["of 7 utterances ", "1 missing or unreadable", "t.csv:3: has 4 fields"])
        fails("prepare", "folder", f"{root}/no\x1bthing\u202e", root / "s", errs="no\\x1bthing\\u202e: cannot be read")
        (root / "none.csv").write_text("file,text\n")
        fails("prepare", "csv", root / "none.csv", root / "s", "--audio-column", "file", "--text-column", "text",
              errs="none.csv: lists no recordings")
        lines = [{"audio_filepath": f"data/{i}.wav", "text": "one"} for i in range(3)]
        (root / "all.json").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
        run("prepare", "nemo", root / "nemo", root / "all.json", "--dev", 0, "--test", 0,
            says=["left out, lines that cannot be understood: 1 of 4", "all.json:4: is not valid JSON", "4 utterances found, 3 used"])


def test_what_a_beginner_forgets():
    """Which columns a table has, which folder the recordings are in, what encoding a spreadsheet wrote, that a recording needs a text."""
    with folder() as root:
        for i in range(3):
            sound(root / "clips" / f"{i}.wav", noise(0.5, seed=i))
        table = "dosya;c\u00fcmle\n" + "".join(f"{i}.wav;bir \u015fey\n" for i in range(3))
        (root / "t.csv").write_text(table, encoding="utf-8")
        words = "--audio-column", "dosya", "--text-column", "c\u00fcmle", "--dev", 0, "--test", 0
        fails("prepare", "csv", root / "t.csv", root / "mine",
              errs="t.csv: which of its columns holds the recordings, which the texts? It has dosya, c\u00fcmle; expected --audio-column")
        fails("prepare", "csv", root / "t.csv", root / "mine", *words,
              errs=[f"t.csv: none of its recordings is there, the first is {root}/0.wav; --audio-folder says"])
        fails("prepare", "csv", root / "t.csv", root / "mine", *words, "--audio-folder", root / "clisp", errs="clisp: cannot be read as a folder")
        run("prepare", "csv", root / "t.csv", root / "mine", *words, "--audio-folder", root / "clips", says="3 used")
        # One that is there is enough: the others are missing, and are told.
        (root / "0.wav").write_bytes((root / "clips" / "0.wav").read_bytes())
        run("prepare", "csv", root / "t.csv", root / "one", *words, says="missing or unreadable: 2 of 3")
        (root / "t.csv").write_bytes(table.encode("cp1254"))
        fails("prepare", "csv", root / "t.csv", root / "mine", *words, "--audio-folder", root / "clips",
              errs=["has no column 'c\u00fcmle', it has dosya, c\\xfcmle; the table is not in UTF-8", "1254 (Turkish)"])
        (root / "t.csv").write_bytes(b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0\xfe[Content_Types].xml\n")  # a workbook
        fails("prepare", "csv", root / "t.csv", root / "mine", *words, errs="t.csv: is no text, expected a table in CSV or TSV")
        fails("prepare", "folder", root / "clips", root / "folder", lines=5, errs="2.wav: no text goes with it, expected 2.txt beside it")


def test_columns_with_usual_names():
    with folder() as root:
        for i in range(3):
            sound(root / "clips" / f"{i}.wav", noise(0.5, seed=i))
        def prepared(table, *, name="t.csv", **expected):
            (root / name).write_text(table)
            return run("prepare", "csv", root / name, root / "mine", "--dev", 0, "--test", 0, **expected)[0]
        rows = "".join(f"{i},clips/{i}.wav,s{i % 2},wort {i}\n" for i in range(3))
        prepared("id,Audio_Path,speaker,Sentence\n" + rows,
                 says=["recordings: column 'Audio_Path', --audio-column names another", "texts: column 'Sentence', --text-column names", "3 used"])
        out = run("prepare", "csv", root / "t.csv", root / "mine", "--audio-column", "Audio_Path", "--text-column", "Sentence",
                  "--dev", 0, "--test", 0, says="3 used", not_says="column '")[0]
        check(paths_of(root / "mine" / "train.jsonl") == [f"../clips/{i}.wav" for i in range(3)], out)
        # One of two is not guessed, and none is not either.
        for header in "id,path,text,sentence", "path,file,x,text", "a,b,c,d":
            (root / "t.csv").write_text(header + "\n" + rows)
            fails("prepare", "csv", root / "t.csv", root / "other",
                  errs=["which of its columns holds the recordings, which the texts? It has " + header.replace(",", ", "),
                        "expected --audio-column NAME and --text-column NAME"])
        (root / "t.csv").write_text("".join(f"clips/{i}.wav,wort {i}\n" for i in range(3)))
        fails("prepare", "csv", root / "t.csv", root / "other",
              errs="its first line is a recording's already: begin it with a line that names the columns")


def test_recordings_as_lists_name_them():
    """The ending left out, and paths of Windows."""
    with folder() as root:
        for i in range(2):
            sound(root / "clips" / f"{i}.wav", noise(0.5, seed=i))
        wanted = [f"../clips/{i}.wav" for i in range(2)]
        for i, names in enumerate((["clips/0", "clips/1"], ["clips\\0.wav", ".\\clips\\1.wav"], ["clips\\0", "clips\\1"])):
            (root / "t.csv").write_text("path,text\n" + "".join(f"{name},one\n" for name in names))
            (root / "m.json").write_text("".join(json.dumps({"audio_filepath": name, "text": "one"}) + "\n" for name in names))
            for kind, words in ("csv", (root / "t.csv", root / f"c{i}")), ("nemo", (root / f"n{i}", root / "m.json")):
                run("prepare", kind, *words, "--dev", 0, "--test", 0, says="2 used")
                check(paths_of(root / f"{kind[0]}{i}" / "train.jsonl") == wanted, kind, names)
        # What is there by the name that is written is meant, whatever lies beside it.
        sound(root / "clips" / "0", noise(0.5, seed=9))
        (root / "t.csv").write_text("path,text\nclips/0,one\n")
        run("prepare", "csv", root / "t.csv", root / "exact", "--dev", 0, "--test", 0, says="1 used")
        check(paths_of(root / "exact" / "train.jsonl") == ["../clips/0"], "another file")


def test_texts_with_other_endings():
    with folder() as root:
        for i in range(2):
            sound(root / "clips" / f"{i}.wav", noise(0.5, seed=i))
            (root / "clips" / f"{i}.{'txt' if i else 'lab'}").write_text("one")
        run("prepare", "folder", root / "clips", root / "mine", "--dev", 0, "--test", 0,
            says="0.wav: no text goes with it, expected 0.txt beside it; 0.lab is there, and is not read")


def test_names_in_other_normal_forms():
    """Accents are characters of their own in names from some systems, and not in lists from others."""
    composed, apart = "s\u00f6z", "so\u0308z"
    for on_disk, listed in (composed, apart), (apart, composed):
        with folder() as root:
            data = root / "data"
            for i in range(2):
                sound(data / f"{on_disk}{i}.wav", noise(0.5, seed=i))
                (data / f"{listed}{i}.txt").write_text("one")
            (data / f"{listed}5.txt").write_text("alone")
            run("prepare", "folder", data, root / "folder", "--dev", 0, "--test", 0,
                says=["3 utterances found, 2 used", f"{listed}5.txt: no recording goes with it"])
            check(paths_of(root / "folder" / "train.jsonl") == [f"../data/{on_disk}{i}.wav" for i in range(2)], "other files")
            (root / "t.csv").write_text(f"{listed},text\n" + "".join(f"data/{listed}{i}.wav,one\n" for i in range(2)))
            (root / "m.json").write_text("".join(json.dumps({"audio_filepath": f"data/{listed}{i}.wav", "text": "one"}) + "\n" for i in range(2)))
            (data / "wav.scp").write_text("".join(f"u{i} {data}/{listed}{i}.wav\n" for i in range(2)))
            (data / "text").write_text("u0 one\nu1 one\n")
            for words in (["csv", root / "t.csv", root / "csv", "--audio-column", on_disk, "--text-column", "text"],
                          ["nemo", root / "nemo", root / "m.json"], ["kaldi", data, root / "kaldi"]):
                run("prepare", *words, "--dev", 0, "--test", 0, says="2 utterances found, 2 used")


def test_memory_of_an_entry():
    """1 kB, also just behind the sizes at which what grows by doubling has doubled."""
    if is_sanitized():
        raise Skip("a sanitizer's memory is not ours")
    # On a disk: of files in memory the program's share of memory would be counted, too.
    with folder("/var/tmp") as root:
        sound(root / "a.wav", noise(0.25))
        (root / "a.txt").write_text("seven words are about what people say")
        entries = 17000  # 2 to the 14th, and some
        session = "a session"[: max(1, 32 - len(str(root)))]  # paths are of one length, wherever the folder lies
        for count, name in ((4, "few"), (entries, "many")):
            data = root / name / "a speaker's name" / session
            data.mkdir(parents=True)
            names = [f"recording-{i:07}" for i in range(count)]
            for n in names:
                os.link(root / "a.wav", data / f"{n}.wav")
                os.link(root / "a.txt", data / f"{n}.txt")
            text = (root / "a.txt").read_text()
            (root / name / "table.csv").write_text("file,text\n" + "".join(f"{data}/{n}.wav,{text}\n" for n in names))
            (root / name / "lines.json").write_text("".join(
                json.dumps({"audio_filepath": f"{data}/{n}.wav", "text": text}) + "\n" for n in names))
            (root / name / "wav.scp").write_text("".join(f"{n} {data}/{n}.wav\n" for n in names))
            (root / name / "text").write_text("".join(f"{n} {text}\n" for n in names))
        table = ["--audio-column", "file", "--text-column", "text"]
        for command, most in ((lambda d: ["folder", root / d, root / "mine"], 1000),
                              (lambda d: ["csv", root / d / "table.csv", root / "csv", *table], 1000),
                              (lambda d: ["nemo", root / "nemo", root / d / "lines.json"], 1000),
                              # Its texts are looked up by their names.
                              (lambda d: ["kaldi", root / d, root / "kaldi"], 1100)):
            few, many = (peak_memory("prepare", *command(d), "--examine", "headers") for d in ("few", "many"))
            check(1024 * (many - few) <= most * entries, command("many"), f"{few} kB for four, {many} kB for {entries}")


main(globals())
