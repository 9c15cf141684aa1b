"""Texts: what prepare says of them and may change, and models whose labels are words or marks."""

import array
import json
import shutil

from cli_support import READY, check, fails, feature_corpus, folder, main, npy, run, train, write_manifest, write_wav

PHONES = {"a": "AH1", "b": "B", "c": "[UNK]"}


def recordings(root, texts):
    """root/said: a recording with each text."""
    (root / "said").mkdir()
    for i, text in enumerate(texts):
        write_wav(root / "said" / f"a{i}.wav", array.array("h", [100 * (k % 7) for k in range(4000)]))
        (root / "said" / f"a{i}.txt").write_bytes(text.encode() if isinstance(text, str) else text)


def prepared(root, *options, **more):
    """The texts in the manifests, and what was said."""
    out, _ = run("prepare", "folder", root / "said", root / "mine", "--dev", 0, "--test", 0, *options, **more)
    return sorted(json.loads(line)["text"] for line in (root / "mine" / "train.jsonl").open()), out


def test_marks_are_named_and_may_go():
    with folder() as root:
        recordings(root, ["<unk> seven [noise]", "one {laugh}", "two (( ))", "three", "<unk>"])
        kept = "'<unk>' 2 times, '(())', '[noise]', '{laugh}'"
        where = f"4 of 5 texts, the first {root}/said/a0.wav: {kept}"
        texts, _ = prepared(root, says=[f"texts, marks in brackets, kept as characters: {where}\n",
                                        "--marks drop leaves them out, --marks token makes each a symbol"])
        check(texts == ["<unk>", "<unk> seven [noise]", "one {laugh}", "three", "two (( ))"], texts)
        texts, out = prepared(root, "--marks", "drop", says=[f"marks in brackets, left out: {where}\n",
                                                             "a4.wav: nothing is left of its text"])
        check(texts == ["one", "seven", "three", "two"], texts)
        check("marks" not in (root / "mine" / "train.toml").read_text())
        texts, out = prepared(root, "--marks", "token", "--lowercase", "--strip-punctuation",
                              says=f"marks in brackets, each a symbol: {where}\n")
        check('[text]\nmarks = "token"\nstrip_punctuation = true\nlowercase = true\n' in (root / "mine" / "train.toml").read_text())
        check(texts == ["<unk>", "<unk> seven [noise]", "one {laugh}", "three", "two (())"], texts)
        run("prepare", "folder", root / "said", root / "mine", "--marks", "all", code=2, errs="--marks")
        fails("prepare", "folder", root / "said", root / "mine", "--marks", "drop", "--strict", lines=2, errs="1 with an empty text")


def test_what_cannot_be_seen_is_named_and_may_go():
    with folder() as root:
        recordings(root, ["\u200f\u05e9\u05dc 12", "\u0661\u0662\u0663 \u0648 \u06f1", "zero\u200bwidth co\u00adop", b"\xef\xbb\xbfname",
                          "a\u2009b c\u00a0d", "bell\x07 e\u0301 c\u043emputer's computer\u2019s"])
        texts, out = prepared(root, says=[
            "texts, characters without a picture: 3 of 6 texts, the first ", "U+0007 (control), U+00AD (soft hyphen), "
            "U+200B (zero-width space), U+200F (right-to-left mark)\n", "--drop-invisible leaves them out",
            "spaces of other kinds, read as plain ones: 1 of 6 texts, the first ", "U+00A0 (no-break space), U+2009 (thin space)\n",
            "digits of 3 kinds: Arabic-Indic (U+0660 to U+0669) 3 times, plain (U+0030 to U+0039) 2 times, Persian",
            "apostrophes that look alike", "letters and accents apart, read as one (NFC): 1 of 6 texts",
            "letters of two scripts in one word, which look alike: 1 of 6 texts", "with Cyrillic '\u043e' (U+043E)\n"])
        check(not {"\x07", "\u200b", "\u200f", "\u00ad", "\u00a0"} & set(out), "it is printed itself")
        check("a b c d" in texts and "name" in texts, texts)
        # The lines it prints are a file for --replace as they stand, after which all is one.
        lines = out.split("in a file for --replace, these lines make one of what looks alike:\n")[1]
        lines = lines.split("sample rates: ")[0]
        (root / "alike").write_text(lines)
        texts, out = prepared(root, "--replace", root / "alike", "--drop-invisible",
                              says=["characters without a picture, left out: 3 of 6 texts", "digits of 2 kinds"],
                              not_says=["look alike", "never found"])
        check(texts == ["a b c d", "bell \u00e9 computer's computer's", "name", "zerowidth coop", "\u05e9\u05dc 12",
                        "\u0661\u0662\u0663 \u0648 \u0661"], texts)


def test_texts_are_told_by_script_and_language():
    with folder() as root:
        recordings(root, ["I\u011eDIR \u0130zmir, 3.14 -5 50%!", "\u039f\u0394\u039f\u03a3", "x-ray"])
        texts, _ = prepared(root, "--lowercase", "--strip-punctuation", says="--locale tr makes \u0131 of I")
        check(texts == ["i\u011fdir izmir 3.14 -5 50%", "x ray", "\u03bf\u03b4\u03bf\u03c2"], texts)
        texts, _ = prepared(root, "--lowercase", "--locale", "tr-TR", not_says="--locale tr makes")
        check(texts[1] == "\u0131\u011fd\u0131r izmir, 3.14 -5 50%!", texts)
        run("prepare", "folder", root / "said", root / "mine", "--locale", "Turkish!", code=2, errs="'Turkish!', expected a language")
        # A language model of such texts is told in the same words.
        (root / "texts").write_text("I\u011eDIR\n\u0130zmir\n")
        for job in ("lm", "train", root / "texts", "--discount-fallback", "--out", root / "m.lm"), ("lm", "query", root / "m.lm", root / "texts"):
            run(*job, "--lowercase", errs="letters of Turkish or Azeri, \u0130 or \u0131, 1 time; --locale tr makes \u0131 of I")
            check("Turkish" not in run(*job, "--lowercase", "--locale", "tr")[1] + run(*job)[1], job)
        shutil.rmtree(root / "said")
        recordings(root, ["\u4f60\u597d\u5417\u4eca\u5929", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"])
        prepared(root, says=["written without spaces", "CER is the rate to go by"])
        shutil.rmtree(root / "said")
        recordings(root, ["W AH1 N", "T UW1"] * 5)
        prepared(root, says="train with text.unit=word")


def phone_corpus(root):
    feature_corpus(root, "ctc")
    for part in "train", "dev", "test":
        lines = [json.loads(line) for line in (root / f"{part}.jsonl").open()]
        for line in lines:
            line["text"] = " ".join(PHONES[letter] for letter in line["text"])
        write_manifest(root / f"{part}.jsonl", lines)


def test_a_model_of_words():
    with folder() as root:
        phone_corpus(root)
        train(root, root / "letters", "training.max_steps=1", "data.text_too_long=skip", says="text.unit=word a label is what stands between spaces")
        model = root / "run"
        train(root, root / "short", "training.epochs=1", 'text.unit="word"', says=" of training are few: training.epochs=")
        train(root, model, "training.epochs=20", 'text.unit="word"', not_says=["look like phones", "are few"])
        info = json.loads(run("info", "--model", model, "--json")[0])
        check(info["alphabet"] == ["AH1 ", "B ", "[UNK] "], info["alphabet"])
        run("eval", model, root / "test.jsonl", "--hypotheses", root / "h.jsonl", says="WER 0.00%", not_says="cannot write")
        line = json.loads((root / "test.jsonl").open().readline())
        hypotheses = [json.loads(h) for h in (root / "h.jsonl").open()]
        check(all(h["hypothesis"] == h["reference"] for h in hypotheses), hypotheses)
        features = root / line["features_filepath"]
        check(run("transcribe", model, features)[0].strip() == line["text"], line)
        found = json.loads(run("transcribe", model, features, "--format", "jsonl", "--beam", 8)[0])
        check(found["text"] == line["text"] and [w["text"] for w in found["words"]] == line["text"].split(), found)
        # A language model of the same texts, and what is said when.
        (root / "texts").write_text("".join(json.loads(t)["text"] + "\n" for t in (root / "train.jsonl").open()))
        run("lm", "train", root / "texts", "--order", 2, "--out", root / "2.lm", "--discount-fallback")
        out, _ = run("transcribe", model, features, "--lm", root / "2.lm", "--beam", 8, "--lm-weight", 0.1)
        check(out.strip() == line["text"], out)
        (root / "said.txt").write_text(line["text"])
        out, _ = run("align", model, features, root / "said.txt")
        check([row.split("\t")[3] for row in out.splitlines()] == line["text"].split(), out)
        (root / "said.txt").write_text("AH1 AH B AHB")
        fails("align", model, features, root / "said.txt", errs="no token of the model stands for 'AH', 'AHB'")
        # What it does not know is a word.
        write_manifest(root / "more.jsonl", [{**line, "text": "AH1 ZZ ZZ"}])
        run("eval", model, root / "more.jsonl", says="2 words this model cannot write: 'ZZ' 2 times")
        begun = [*READY, f"data={root}", "training.max_steps=1", "--init-from", model, f"training.checkpoint_dir={root}/more"]
        fails("train", *begun, "text.unit=character", errs=["text.unit is \"character\"", "is of words"])
        fails("train", *begun, f"data.train={root}/more.jsonl", lines=2, errs="its text holds words outside the alphabet: 'ZZ' 2 times")
        run("train", *begun, f"data.train={root}/more.jsonl", "--alphabet", "extend", says="(4 words), 3 of them known")
        train(root, model, "training.epochs=21", "--resume", 'text.unit="word"', says="continuing after step")
        train(root, root / "given", "training.max_steps=1", "text.unit=word", 'data.alphabet="[UNK] B AH1 X"')
        check(json.loads(run("info", "--model", root / "given", "--json")[0])["alphabet"] == ["[UNK] ", "B ", "AH1 ", "X "], "as given")


def test_a_model_with_marks():
    with folder() as root:
        feature_corpus(root, "ctc")
        for part in "train", "dev", "test":
            lines = [json.loads(line) for line in (root / f"{part}.jsonl").open()]
            write_manifest(root / f"{part}.jsonl", [{**line, "text": line["text"].replace("c", "<um>").upper()} for line in lines])
        model = root / "run"
        train(root, model, "training.epochs=20", "text.marks=token", "text.lowercase=true")
        check(json.loads(run("info", "--model", model, "--json")[0])["alphabet"] == ["a", "b", "<UM>"], "the alphabet")
        run("eval", model, root / "test.jsonl", says="CER 0.00%", not_says="cannot write")
        lines = [json.loads(line) for line in (root / "test.jsonl").open()]
        line = next(l for l in lines if "<UM>" in l["text"] and len(l["text"]) > 7)
        wanted = line["text"].replace("A", "a").replace("B", "b")
        for options in [], ["--beam", 8]:
            out, _ = run("transcribe", model, root / line["features_filepath"], *options)
            check(out.strip() == wanted, out, wanted)
        (root / "said.txt").write_text(line["text"])
        run("align", model, root / line["features_filepath"], root / "said.txt", says=line["text"])
        # Names as people write them are looked for as the model writes.
        (root / "hot").write_text("AB\nB A\n")
        for job in ["transcribe", model, root / line["features_filepath"]], ["eval", model, root / "test.jsonl"]:
            run(*job, "--hot-words", root / "hot", "--beam", 8, not_says="cannot spell")
        # A model of the same characters; and one that was trained without such labels is what it was.
        (root / "texts").write_text("".join(json.loads(t)["text"].lower() + "\n" for t in (root / "train.jsonl").open()))
        out = run("lm", "train", root / "texts", "--order", 2, "--characters", "--marks", "token", "--out", root / "2.arpa", "--discount-fallback")[0]
        check("3 different" in out and "\t<um>" in (root / "2.arpa").read_text(), out)
        write_manifest(root / "i.jsonl", [{**json.loads(t), "text": "I \u0131"} for t in (root / "train.jsonl").open()])
        for locale, warns in ("", True), ("tr", False):
            out = train(root, root / f"i{locale}", f"data.train={root}/i.jsonl", "data.dev=", "data.test=", "training.max_steps=1", "text.lowercase=true", f"text.locale={locale}")
            check(("letters of Turkish or Azeri" in str(out)) == warns, out)
        fails(*["train", *READY, f"data={root}"], "text.marks=all", errs='text.marks is "all", expected one of "keep", "drop", "token"')
        fails(*["train", *READY, f"data={root}"], "text.locale=x", errs='text.locale is "x", expected a language, as "tr"')


main(globals())
