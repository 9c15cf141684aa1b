"""rondo score: error rates of files of texts, in the forms in which several programs write them."""

import gzip

from bad_input_support import *

# By hand: 1 of 3 words substituted; 1 of 2 deleted; none of 2; 1 inserted into 1.
REFERENCES = {"a1": "one two three", "a2": "four five", "b1": "six seven", "b2": "eight"}
HYPOTHESES = {"a1": "one too three", "a2": "four", "b1": "six seven", "b2": "eight nine"}
WORDS = {"wer": 3 / 8, "words": 8, "substitutions": 1, "insertions": 1, "deletions": 1, "utterances": 4}


def write(path, texts, form):
    """Texts by name in one of the forms; returns the path."""
    if form == "jsonl":
        write_manifest(path, [{"id": name, "audio_filepath": f"wav/{name}.wav", "text": text, "speaker": name[0]}
                              for name, text in texts.items()])
    elif form == "ids":
        path.write_text("".join(f"{name}\t {text}\n" for name, text in texts.items()))
    elif form == "trn":
        path.write_text(";; of a test\n" + "".join(f"{text} ({name})\n" for name, text in texts.items()))
    elif form == "ctm":
        path.write_text(";; of a test\n" + "".join(f"{name} 1 {i * 0.5:.2f} 0.40 {word} 0.9\n"
                                                   for name, text in texts.items() for i, word in enumerate(text.split())))
    else:
        path.write_text("".join(text + "\n" for text in texts.values()))
    return path


def scored(*words, **more):
    out, _ = run("score", *words, "--json", **more)
    return json.loads(out)


def is_right(result):
    check(result["all"].items() >= WORDS.items(), result)


def test_forms():
    with folder() as root:
        ending = {"jsonl": "jsonl", "ids": "txt", "trn": "trn", "ctm": "ctm", "lines": "txt"}
        for one in ending:
            first = write(root / f"reference-{one}.{ending[one]}", REFERENCES, one)
            for other in ending:
                if (one == "lines") != (other == "lines"):
                    continue
                # The order of named texts does not matter.
                order = HYPOTHESES if other == "lines" else dict(reversed(HYPOTHESES.items()))
                second = write(root / f"hypothesis-{other}.{ending[other]}", order, other)
                is_right(scored(first, second, *["--ids"] * ("ids" in (one, other))))


def test_more_forms():
    """NIST's STM with its labels and gaps, subtitles, NeMo's line with both texts; and a table, which is none."""
    with folder() as root:
        stm = root / "r.stm"
        stm.write_text(";; of a test\nb1 1 x 0.0 1.0 <o,f0> six seven\na1 A y 1.5 2.0 three\n\na1 1 y 0 1.5 <o> one two\n"
                       "a1 1 y 2.0 3.0 <o> ignore_time_segment_in_scoring\na2 2 y 0 1 four five\nb2 1 y 0 1 <o>\n")
        hypotheses = write(root / "h.jsonl", {"a1": "one too three", "a2 2": "four", "b1": "six seven", "b2": "nine"}, "jsonl")
        check(scored(stm, hypotheses)["all"].items() >=
              {"words": 7, "substitutions": 1, "insertions": 1, "deletions": 1, "utterances": 4}.items(), "stm")
        stm.write_text("a1 1 x 0.0 later one\n")
        fails("score", stm, stm, errs="r.stm:1: 'later', expected a time in seconds")
        (root / "one.txt").write_text("one two three four\n")
        (root / "h.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\none <i>too</i>\nthree\n\n2\n00:00:01,000 --> 00:00:02,000\nfour five\n")
        for pair in ("one.txt", "h.srt"), ("h.srt", "one.txt"):
            check(scored(*(root / name for name in pair))["all"]["substitutions"] == 1, pair)
        check(scored(root / "h.srt", root / "h.srt")["all"].items() >= {"words": 5, "wer": 0}.items(), "subtitles")
        nemo = root / "nemo.json"
        write_manifest(nemo, [{"audio_filepath": f"{name}.wav", "text": text, "pred_text": HYPOTHESES[name]}
                              for name, text in REFERENCES.items()])
        is_right(scored(nemo))
        write_manifest(nemo, [{"audio_filepath": "a.wav", "text": "one"}])
        fails("score", nemo, errs='nor "text" beside "pred_text"')
        (root / "h.csv").write_text("id,text\na,one\n")
        fails("score", root / "one.txt", root / "h.csv", errs="h.csv: is a table, expected .jsonl")


def test_text():
    with folder() as root:
        first, second = write(root / "r.jsonl", REFERENCES, "jsonl"), write(root / "h.trn", HYPOTHESES, "trn")
        run("score", first, second, "--group-by", "speaker",
            says=["WER 37.50% CER", "on 4 utterances", "1 substituted, 1 inserted, 1 deleted",
                  "speaker a                WER  40.00%", "speaker b                WER  33.33%", "two as too (1)"],
            not_says=["loss", "real time"])
        (root / "utt2spk").write_text("a1 x\na2 y\nb1 x\nb2 y\n")
        groups = scored(first, second, "--speakers", root / "utt2spk")["groups"]
        check(groups["speaker=x"]["wer"] == 1 / 5 and groups["speaker=y"]["wer"] == 2 / 3, groups)
        run("score", first, second, "--report", root / "page.html")
        page = (root / "page.html").read_text()
        check("Errors in " in page and "37.5" in page and "NaN" not in page and "nan" not in page.lower().split("</style>")[1],
              page[:500])


def test_rules():
    with folder() as root:
        (root / "r").write_text("Hello, World!\nIt's 3.14\n")
        (root / "h").write_text("hello world\nit's 3.14\n")
        check(scored(root / "r", root / "h")["all"]["wer"] == 3 / 4)
        check(scored(root / "r", root / "h", "--lowercase", "--strip-punctuation")["all"]["wer"] == 0)


def test_encodings():
    with folder() as root:
        text = "eins zwei\r\nüber drei\r\n"
        (root / "r").write_bytes(b"\xef\xbb\xbf" + text.encode())
        (root / "h").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
        check(scored(root / "r", root / "h")["all"]["cer"] == 0)
        (root / "z.gz").write_bytes(gzip.compress(text.encode()))
        check(scored(root / "r", root / "z")["all"]["cer"] == 0)
        # Both forms of the same letter.
        (root / "d").write_text("eins zwei\nu\u0308ber drei")
        check(scored(root / "r", root / "d")["all"]["cer"] == 0)


def test_texts_that_are_missing():
    with folder() as root:
        first = write(root / "r.jsonl", REFERENCES, "jsonl")
        some = {"a1": HYPOTHESES["a1"], "zz": "not asked for", "b1": "six seven"}
        second = write(root / "h.jsonl", some, "jsonl")
        out, err = run("score", first, second, "--json")
        check(json.loads(out)["all"]["deletions"] == 3, out)
        check("no text for 2 utterances" in err and "'a2'" in err and "1 utterance not in" in err and "'zz'" in err, err)
        # An empty text is one.
        write(root / "h.jsonl", {**HYPOTHESES, "a1": ""}, "jsonl")
        out, err = run("score", first, root / "h.jsonl", "--json")
        check(json.loads(out)["all"]["deletions"] == 4 and err == "", out, err)
        # Nothing was said.
        write(root / "r.jsonl", {**REFERENCES, "b2": ""}, "jsonl")
        check(scored(root / "r.jsonl", root / "h.jsonl")["all"]["insertions"] == 2)


def test_what_the_program_writes():
    """transcribe's lines and eval's, also of several utterances in a recording."""
    root = tone_model()
    with folder() as own:
        out, err = run("transcribe", root / "run", root / "dev.jsonl", "--format", "jsonl", "--json")
        told = json.loads(err.splitlines()[-1])
        check(told["command"] == "transcribe" and told["inputs"] == len(out.splitlines()) and told["failed"] == 0, told)
        _, err = run("transcribe", root / "run", root / "dev000.wav", own / "none.wav", "--json", code=1)
        told = json.loads(err.splitlines()[-1])
        check(told["inputs"] == 2 and told["failed"] == 1 and told["model"].endswith("run/model.safetensors"), told)
        (own / "h.jsonl").write_text(out)
        run("eval", root / "run", root / "dev.jsonl", "--hypotheses", own / "both.jsonl")
        want, _ = run("eval", root / "run", root / "dev.jsonl", "--json")
        want = json.loads(want)["all"]
        for words in ([root / "dev.jsonl", own / "h.jsonl"], [own / "both.jsonl"]):
            found = scored(*words)["all"]
            check(all(found[name] == want[name] for name in ("wer", "cer", "utterances", "words")), words, found, want)
        ctm, _ = run("transcribe", root / "run", root / "dev.jsonl", "--format", "ctm")
        (own / "h.ctm").write_text(ctm)
        out, err = run("score", root / "dev.jsonl", own / "h.ctm", "--json")
        check("names of files" in err, err)
        parts = [{"audio_filepath": "x.wav", "begin": 0.5, "text": "one two"},
                 {"audio_filepath": "x.wav", "begin": 3.25, "text": "three"}]
        write_manifest(own / "parts.jsonl", parts)
        write_manifest(own / "whole.jsonl", [{"audio_filepath": "x.wav", "text": "one two three"}])
        check(scored(own / "whole.jsonl", own / "parts.jsonl")["all"]["wer"] == 0)
        write_manifest(own / "parts.jsonl", parts[::-1])
        fails("score", own / "whole.jsonl", own / "parts.jsonl", errs=["parts.jsonl:2: ", "'x.wav'", "line 1 already"])


def test_what_is_wrong():
    with folder() as root:
        r = write(root / "r.txt", REFERENCES, "lines")
        (root / "short").write_text("one\ntwo\n")
        fails("score", r, root / "short", errs=["short: has 2 lines, expected 4"])
        named = write(root / "n.trn", HYPOTHESES, "trn")
        fails("score", r, named, errs=["r.txt: has lines without names", "--ids"])
        (root / "bad.trn").write_text("one (a1)\ntwo\n")
        fails("score", named, root / "bad.trn", errs=["bad.trn:2: 'two', expected a text and its name"])
        (root / "utt2spk").write_text("a1 x\na2\n")
        fails("score", named, named, "--speakers", root / "utt2spk", errs=["utt2spk:2: expected an utterance and its speaker"])
        (root / "bad.ctm").write_text("a1 1 zero 0.1 one\n")
        fails("score", named, root / "bad.ctm", errs=["bad.ctm:1: 'zero', expected a time"])
        (root / "bad.ctm").write_text("a1 1 0 0.1\n")
        fails("score", named, root / "bad.ctm", errs=["bad.ctm:1: expected a name, a channel"])
        (root / "bad.jsonl").write_text('{"id": "a1"}\n')
        fails("score", named, root / "bad.jsonl", errs=['bad.jsonl:1: no "text"'])
        (root / "bad.jsonl").write_text('{"text": "x"}\n')
        fails("score", named, root / "bad.jsonl", errs=["bad.jsonl:1: ", "expected a name"])
        (root / "bad.jsonl").write_text('{"id": "a1", "text": \n')
        fails("score", named, root / "bad.jsonl", errs=["bad.jsonl:1: "])
        (root / "twice").write_text("a1 one\na1 two\n")
        fails("score", named, root / "twice", "--ids", errs=["twice:2: 'a1' has a text in line 1 already"])
        (root / "other").write_text("q1 one\n")
        fails("score", named, root / "other", "--ids", errs=["other: has none of the names", "'q1'", "'a1'"])
        (root / "bytes").write_bytes(b"one\n\xff\xfe two\nthree\nfour\n")
        fails("score", r, root / "bytes", errs=["bytes:2: is not UTF-8"])
        (root / "empty").write_text("")
        fails("score", root / "empty", root / "empty", errs=["empty: has no text"])
        fails("score", root / "nowhere", r, errs=["nowhere"])
        fails("score", r, errs=['no "reference"'])
        fails("score", named, named, "--group-by", "colour", errs=["'colour'"])
        fails("score", named, named, "--report", named, errs=["--report"])
        check(len((root / "n.trn").read_text()) > 50, "it was written over")
        # What is outside is shown in part, and never as it is.
        (root / "huge.trn").write_text("\x1b[31m" + "x" * 1000000 + "\n")
        _, err = fails("score", named, root / "huge.trn", errs=["huge.trn:1: "])
        check(len(err) < 400 and "\x1b" not in err, err[:300])


def test_what_transcribe_and_decode_print_needs_no_option():
    with folder() as root:
        (root / "r.txt").write_text("hello world\ngood day\n")
        (root / "r.jsonl").write_text('{"audio_filepath": "b.wav", "text": "good day"}\n'
                                      '{"audio_filepath": "a.wav", "text": "hello world"}\n')
        for end in ("", "\n", "\n\n"):
            (root / "h.tsv").write_text("x/a.npy\thello word\nx/b.npy\tgood day" + end)
            out, err = run("score", root / "r.txt", root / "h.tsv", says="WER 25.00% CER 5.26% on 2 utterances")
            check("belong together line by line: only one of them has names" in err and "worst utterance: " in out, err)
            _, err = run("score", root / "r.jsonl", root / "h.tsv", says="WER 25.00% CER 5.26% on 2 utterances")
            check("by the names of files" in err and "line by line" not in err, err)
            run("score", root / "h.tsv", root / "r.jsonl", says="WER 25.00%")
        (root / "h.tsv").write_text("a.npy\thello word\nb.npy\t\n")  # an empty text is one
        run("score", root / "r.jsonl", root / "h.tsv", says="2 deleted")
        (root / "h.tsv").write_text("a.npy\thello word\n")
        fails("score", root / "r.txt", root / "h.tsv", errs=["h.tsv: has 1 lines, expected 2"])
        # A tab in some lines, or one name twice, makes no names.
        (root / "h.tsv").write_text("hello\tword\ngood day\n")
        run("score", root / "r.txt", root / "h.tsv", says="WER 25.00%")
        (root / "h.tsv").write_text("good\tword\ngood\tday\n")
        run("score", root / "r.txt", root / "h.tsv", says="WER 50.00%")


def test_names_that_were_forgotten():
    with folder() as root:
        first, second = write(root / "r", REFERENCES, "ids"), write(root / "h", HYPOTHESES, "ids")
        right, err = run("score", first, second)  # the names end with tabs
        check(err == "", err)
        for path in (first, second):
            path.write_text(path.read_text().replace("\t", " "))
        _, err = run("score", first, second)
        check("look like names" in err and "--ids" in err, err)
        out, err = run("score", first, second, "--ids")
        check(err == "" and out == right, out, err)


main(globals())
