"""rondo decode: outputs that other programs made, with every kind of vocabulary."""

import json
import math
import pathlib
import struct
import subprocess

from cli_support import check, fails, folder, kenlm_binary, main, run, start
from outputs_support import said, spoken, write_npy


def test_folder_of_hugging_face():
    """vocab.json, what was added to it, the roles of tokens, a language model with its weights."""
    with folder() as root:
        model = root / "model"
        model.mkdir()
        (model / "vocab.json").write_text('{"/": 1, "a": 2, "b": 3, "_": 0}')
        (model / "added_tokens.json").write_text('{"<s>": 4, "a": 2}')
        rows = spoken([2, 0, 1, 0], 5) + [[0.02, 0.02, 0.47, 0.49, 0]]
        write_npy(root / "x.npy", rows)
        fails("decode", model, root / "x.npy", errs="which of its 5 tokens is the blank")
        (model / "tokenizer_config.json").write_text('{"pad_token": {"content": "_"}, "word_delimiter_token": "/"}')
        check(said("decode", model, root / "x.npy").strip() == "a b", "no language model")
        (model / "language_model").mkdir()
        (model / "language_model/attrs.json").write_text(
            '{"alpha": 0.5, "beta": 1.5, "unk_score_offset": -10.0, "score_boundary": true}')
        fails("decode", model, root / "x.npy", errs="language_model: holds no language model, expected an ARPA file or")
        check(said("decode", model, root / "x.npy", "--beam", 0).strip() == "a b", "best classes")
        (root / "text").write_text("a a\na a\na a a\nb\n")
        run("lm", "train", root / "text", "--order", "2", "--discount-fallback", "--out", model / "language_model/2gram.arpa")
        (model / "language_model/unigrams.txt").write_text("a\nb\n")
        line = json.loads(said("decode", model, root / "x.npy", "--format", "jsonl"))["alternatives"][0]
        check(line["text"] == "a a", line)
        check(abs(line["score"] - line["log_probability"] - 0.5 * math.log(10) * line["lm_log10"] - 2 * 1.5) < 1e-6, line)
        (model / "language_model/attrs.json").write_text('{"alpha": 0.25, "beta": -1, "score_boundary": false}')
        line = json.loads(said("decode", model, root / "x.npy", "--format", "jsonl", "--word-score", 2))["alternatives"][0]
        check(abs(line["score"] - line["log_probability"] - 0.25 * math.log(10) * line["lm_log10"] - 2 * 2) < 1e-6, line)
        # No sentence begins or ends: words alone have probabilities.
        (root / "plain").write_text(line["text"] + "\n")
        asked = said("lm", "query", model / "language_model/2gram.arpa", root / "plain", "--words", "--format", "jsonl")
        check(line["lm_log10"] > json.loads(asked.splitlines()[0])["log10"] + 0.1, line, asked)
        (model / "language_model/other.arpa").write_text("")
        fails("decode", model, root / "x.npy", errs="holds several language models")
        (model / "language_model/other.arpa").unlink()
        for weights in ('{"alpha": "much"}', '{"alpha": -1}', '{"beta": 1e9}', "[", '{"score_boundary": 1}'):
            (model / "language_model/attrs.json").write_text(weights)
            fails("decode", model, root / "x.npy", errs="attrs.json: ")
        (model / "language_model/attrs.json").unlink()
        # The other commands for such outputs take the folder, too.
        (root / "dev.jsonl").write_text('{"features_filepath": "x.npy", "text": "a a"}\n')
        check("best: --lm-weight" in said("tune", model, root / "dev.jsonl"), "tune")
        (root / "x.txt").write_text("a b\n")
        check(json.loads(said("align", model, root / "x.npy", "--format", "jsonl"))["text"] == "a b", "align")
        (model / "vocab.json").unlink()
        fails("decode", model, root / "x.npy", errs="has no vocab.json")


def test_known_words_of_a_folder():
    """language_model/unigrams.txt: the other words of the model cost unk_score_offset, and may be all the same."""
    with folder() as root:
        model = root / "model"
        inside = model / "language_model"
        inside.mkdir(parents=True)
        (model / "vocab.json").write_text('{"<pad>": 0, "|": 1, "a": 2, "b": 3}')
        (inside / "m.arpa").write_text("\\data\\\nngram 1=5\n\n\\1-grams:\n-2\t<unk>\n-99\t<s>\n-1\t</s>\n"
                                       "-0.5\ta\n-0.6\tb\n\n\\end\\\n")
        (inside / "attrs.json").write_text(
            '{"alpha": 0.5, "beta": 1.5, "unk_score_offset": -2, "score_boundary": true}')
        unigrams = inside / "unigrams.txt"
        # "a" by the network and the language model.
        write_npy(root / "x.npy", [[0.02, 0.02, 0.5, 0.46]])
        # "b", which may be "a".
        write_npy(root / "y.npy", [[0, 0, 0.01, 0.99]])

        def best(output, *options, warns=None):
            out, err = run("decode", model, root / output, "--format", "jsonl", "--nbest", 2, *options)
            check((warns in err) if warns else not err, options, repr(err))
            found = json.loads(out)["alternatives"][0]
            return found["text"], found["score"] - found["log_probability"]

        def worth(log10, unknown=0, alpha=0.5):
            return alpha * math.log(10) * (log10 - 1) + 1.5 + unknown

        def check_best(found, text, value):
            check(found[0] == text and abs(found[1] - value) < 1e-6, found, text, value)

        cost = 0.5 * math.log(10) * -2
        for content in (None, b"a\nb\n", b"b\na\nb\n\xc3\xa9\r\nab\r\n"):
            if content:
                unigrams.write_bytes(content)
            check_best(best("x.npy"), "a", worth(-0.5))
            check_best(best("y.npy"), "b", worth(-0.6))
        huge = b"h" * (1 << 20)
        for content in (b"b", b"\xef\xbb\xbfb\r\nb\r\n\r\n", b"b\n" + huge + b"\n"):
            unigrams.write_bytes(content)
            check_best(best("x.npy"), "b", worth(-0.6))
        # Unknown, and written all the same.
        unigrams.write_text("a\n")
        check_best(best("y.npy"), "b", worth(-0.6, cost))
        check_best(best("y.npy", "--unknown-score", -1), "b", worth(-0.6, -1))
        check_best(best("y.npy", "--lm-weight", 0.25), "b", worth(-0.6, cost, 0.25))
        # What the command line says comes before what the folder says.
        (root / "list").write_text("b\n")
        check_best(best("x.npy", "--lexicon", root / "list"), "b", worth(-0.6))
        check_best(best("y.npy", "--lexicon", root / "list"), "b", worth(-0.6))
        (root / "dev.jsonl").write_text('{"features_filepath": "y.npy", "text": "b"}\n')
        said("tune", model, root / "dev.jsonl")

        # Lists that say nothing, and what is no list.
        for content in (b"", b"\r\n\n"):
            unigrams.write_bytes(content)
            check_best(best("x.npy", warns="unigrams.txt: holds no words"), "a", worth(-0.5))
        unigrams.write_bytes(b"\x1b[2J" + huge + b"\n")
        out, err = run("decode", model, root / "x.npy")
        check("has 0 of the 1 known words, and not '\\x1b[2Jhhh" in err and len(err) < 250, len(err), err[:300])
        check(out.strip() == "a", out)
        unigrams.write_bytes(b"a\nb\n" + huge + b"\xff\n")
        err = fails("decode", model, root / "x.npy", errs="unigrams.txt:3: is not valid UTF-8")[1]
        check(len(err) < 250, len(err))
        said("decode", model, root / "x.npy", "--lexicon", root / "list")
        # So dear that none is found.
        unigrams.write_text("b\n")
        (inside / "attrs.json").write_text('{"alpha": 1, "unk_score_offset": -1000}')
        check(best("x.npy")[0] == "b", "none unknown")
        for attributes in ('{"unk_score_offset": 3}', '{"unk_score_offset": -1e4}', '{"alpha": 1e3}'):
            (inside / "attrs.json").write_text(attributes)
            fails("decode", model, root / "x.npy", errs='attrs.json: "')


def test_what_is_told():
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        write_npy(root / "x.npy", spoken([0, 2, 2, 0, 1, 3], 4))
        write_npy(root / "y.npy", [[math.log(p) + 3 for p in row] for row in spoken([3, 3, 0, 3], 4)])
        out = said("decode", root / "tokens", root / "x.npy", "--frame-ms", 20, "--format", "jsonl", "--nbest", 3)
        line = json.loads(out)
        check(line["text"] == "a b" and [w["text"] for w in line["words"]] == ["a", "b"], line)
        check((line["words"][0]["begin"], line["words"][0]["end"]) == (0.02, 0.06), line)
        check(abs(line["words"][0]["probability"] - 0.9) < 1e-6, line)
        best = [a["log_probability"] for a in line["alternatives"]]
        check(len(best) == 3 and best == sorted(best, reverse=True) and best[0] < 0, line)
        # Each has words with times of its own, and --nbest asks for all that it needs.
        check(line["alternatives"][0]["words"] == line["words"], line)
        for one in line["alternatives"]:
            check(" ".join(w["text"] for w in one["words"]) == one["text"], one)
            check(all(0 <= w["begin"] < w["end"] <= 0.12 for w in one["words"]), one)
        check(said("decode", root / "tokens", root / "x.npy", "--frame-ms", 20, "--nbest", 3) == out, "by itself")
        all_texts = json.loads(said("decode", root / "tokens", root / "x.npy", "--nbest", 150))["alternatives"]
        check(len(all_texts) > 3 and "words" in all_texts[-1], all_texts)
        for wrong in (["--beam", 2], ["--beam", 0], ["--format", "text"], ["--format", "ctm", "--frame-ms", 20]):
            run("decode", root / "tokens", root / "x.npy", "--nbest", 3, *wrong, code=2, errs="--nbest 3 takes")
        # Logits, probabilities and their logarithms are one and the same; any number of threads is.
        both = [said("decode", root / "tokens", root, "--threads", n) for n in (1, 2)]
        check(both[0] == both[1] == f"{root}/x.npy\ta b\n{root}/y.npy\tbb\n", both)


def npy(dtype, shape, values, fortran=False):
    """A .npy file of any type, `values` in the order of the file."""
    header = f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    code = dtype[0].replace("|", "<") + {"f2": "e", "f4": "f", "f8": "d"}[dtype[1:]]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"".join(
        struct.pack(code, v) for v in values)


def test_outputs_of_other_programs():
    """Every way in which the same scores may be written, and those that are none."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        rows = spoken([0, 2, 2, 0, 1, 3], 4)
        flat = [v for row in rows for v in row]
        by_column = [row[c] for c in range(4) for row in rows]
        for content in (
            npy("<f4", (6, 4), flat), npy(">f4", (6, 4), flat), npy(">f8", (6, 4), flat), npy("<f2", (6, 4), flat),
            npy("<f4", (6, 4), by_column, True), npy(">f8", (6, 4), by_column, True),
            npy("<f4", (1, 6, 4), flat), npy("<f4", (6, 1, 4), flat), npy("<f8", (1, 6, 4), by_column, True),
        ):
            (root / "x.npy").write_bytes(content)
            for beam in 0, 20:
                check(said("decode", root / "tokens", root / "x.npy", "--beam", beam).strip() == "a b", content[:80])
        fails("decode", root / "tokens", write(root / "y.npy", npy("<f4", (2, 3, 4), flat)), errs="has shape (2, 3, 4)")

        # Rounded and clipped probabilities are some; with logits in their place the second row would win.
        rounded = [[0, 0, 0.6, 0.43], [-1e-9, 0, 0.5, 0.475], [0.97, 0, 0, 0]]
        write_npy(root / "x.npy", rounded)
        run("decode", root / "tokens", root / "x.npy", "--scores", "probabilities")
        line = json.loads(said("decode", root / "tokens", root / "x.npy", "--beam", 0, "--format", "jsonl"))
        check(line["text"] == "a" and abs(line["words"][0]["probability"] - (0.6 / 1.03 + 0.5 / 0.975) / 2) < 1e-6, line)
        write_npy(root / "x.npy", [*rounded, [0.9, 0.14, 0, 0]])
        fails("decode", root / "tokens", root / "x.npy", "--scores", "probabilities",
              errs="x.npy: frame 3 is not of probabilities: the sum is 1.04")
        # Of a file that is of probabilities but for a row, nothing is guessed.
        write_npy(root / "x.npy", [*rounded, [0, 0, 0, 0]])
        fails("decode", root / "tokens", root / "x.npy", errs="x.npy: frame 3 is not of probabilities: the sum is 0; 3 of 4 frames are")
        run("decode", root / "tokens", root / "x.npy", "--scores", "logits")
        for scale, what in ((-1, "minus the natural"), (1 / math.log(10), "the logarithms to base 10"), (1 / math.log(2), "base 2")):
            write_npy(root / "x.npy", [[scale * math.log(v) for v in row] for row in rows])
            fails("decode", root / "tokens", root / "x.npy", errs=["x.npy: holds ", what])
            run("decode", root / "tokens", root / "x.npy", "--scores", "logits")
        write_npy(root / "x.npy", [[math.log(v) for v in row] for row in rows])
        check(said("decode", root / "tokens", root / "x.npy").strip() == "a b", "natural logarithms")

        # The logarithm of 0 is one score; what is none is told with its frame.
        inf = math.inf
        write_npy(root / "x.npy", [[-inf, -inf, 3, 1], [0, -inf, -inf, -inf]])
        for beam in 0, 20:
            check(said("decode", root / "tokens", root / "x.npy", "--beam", beam).strip() == "a", beam)
        for row, errs in (
            ([1, inf, 0, 0], "x.npy: frame 1, class 1: is infinite"),
            ([1, math.nan, 0, 0], "x.npy: frame 1, class 1: is no number"),
            ([-inf] * 4, "x.npy: frame 1: every class is -inf"),
        ):
            write_npy(root / "x.npy", [[0, 1, 2, 3], row])
            for command in (["decode"], ["decode", "--beam", 0]):
                fails(*command, root / "tokens", root / "x.npy", errs=errs)
        wide = npy("<f8", (2, 4), [0, 1, 2, 3, 0, 0, -1e39, 0])
        fails("decode", root / "tokens", write(root / "x.npy", wide), errs="x.npy: frame 1, column 2: is -1e+39")


def write(path, content):
    path.write_bytes(content)
    return path


def test_outputs_that_arrive():
    """Frames on standard input: text comes before they end, and is that of the file."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        labels = [0, 2, 2, 0, 3, 1, 3, 0, 2, 1, 2, 2, 3, 0] * 8 + [3]
        rows = spoken(labels, 4, 0.97)
        write_npy(root / "x.npy", rows)
        whole = said("decode", root / "tokens", root / "x.npy")
        raw = struct.pack(f"<{4 * len(rows)}f", *(v for row in rows for v in row))
        logits = struct.pack(f"<{4 * len(rows)}f", *(math.log(v) + 1 for row in rows for v in row))
        for content in (raw, logits, (root / "x.npy").read_bytes(), npy(">f8", (len(rows), 4), [v for r in rows for v in r])):
            check(run("decode", root / "tokens", "-", "--stream", stdin=content)[0] == whole, content[:60])
        # A class more, that nobody names.
        wide = npy("<f4", (len(rows), 5), [v for row in rows for v in [*row, 0]])
        check(run("decode", root / "tokens", "-", "--stream", "--ignore-unnamed", stdin=wide)[0] == whole, "ignored")
        # With so few beginnings of texts, what they have in common is soon known.
        words = ["decode", root / "tokens", "-", "--stream", "--beam", 3]
        with start(*words, stdin=subprocess.PIPE) as process:
            process.stdin.write(raw[: len(raw) // 2])
            process.stdin.flush()
            begun = process.stdout.read1(1000)  # waits until something is there
            check(begun and whole.encode().startswith(begun), begun)
            process.stdin.write(raw[len(raw) // 2 :])
            process.stdin.close()
            check(begun + process.stdout.read() == whole.encode(), begun)
        check(run("decode", root / "tokens", "-", "--stream", stdin=b"")[0] == "\n", "nothing")
        # 25 silent frames are a second of frames as they usually are; 10 of 0.1 s are one, too.
        pause = spoken(labels + [0] * 25 + labels, 4, 0.97)
        raw_pause = struct.pack(f"<{4 * len(pause)}f", *(v for row in pause for v in row))
        for more, count in (([], 2), (["--frame-ms", 10], 1), (["--frame-ms", 100], 2), (["--end-silence", 0], 1),
                            (["--end-silence", 1.2], 1), (["--longest", 3, "--end-silence", 0], 4)):
            lines = run("decode", root / "tokens", "-", "--stream", *more, stdin=raw_pause)[0].splitlines()
            check(len(lines) == count and lines[0].startswith(whole[:12]), more, lines)
        run("decode", root / "tokens", root / "x.npy", "--longest", 9, code=2, errs="--longest goes with --stream")
        for content, errs in (
            (raw[:-3], "standard input: ends within frame 112, expected 16 bytes for each frame of 4 classes, found 13"),
            (npy("<f4", (3, 4), [1] * 8), "standard input: ends within frame 2"),
            (npy("<f4", (1, 4), [1] * 8), "standard input: has more than the 1 frames"),
            (npy("<f4", (2, 5), [1] * 10), ["standard input: has 5 classes per frame", "taken to be class 0", "--ignore-unnamed"]),
            (npy("<f4", (2, 4), [1] * 8, True), "is in Fortran order"),
            (raw[:16] + struct.pack("<4f", 5, 1, 1, 1), ["frame 1 is not of probabilities: the sum is 8; the frames before it were",
                                                           "a frame is taken to have 4 classes"]),
            (struct.pack("<4f", math.nan, 1, 1, 1), "frame 0, class 0: is no number"),
            (b"\x93NUMPY\x01", "standard input: is not a .npy file"),
        ):
            run("decode", root / "tokens", "-", "--stream", stdin=content, code=1, errs=errs)
        for words, errs in (([root / "x.npy"], "--stream reads standard input"), (["-", "--format", "jsonl"], "--format text alone"),
                            (["-", "--beam", 0], "--beam is at least 1")):
            run("decode", root / "tokens", *words, "--stream", code=2, errs=errs)


def test_folders():
    """Folders below the one that is given are there again in --out; what is left out is named."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        for name in ("in/x.npy", "in/one/x.npy", "in/one/two/y.npy"):
            (root / name).parent.mkdir(exist_ok=True)
            write_npy(root / name, spoken([0, 2, 2, 0, 1, 3], 4))
        for name in ("in/x.txt", "in/one/notes.doc", "in/one/z\x1b.wav", "in/.hidden", "in/one/x.gt.txt"):
            (root / name).write_text("")
        (root / "in/gone.npy").symlink_to("nowhere")
        for given in (root / "in", f"{root}/in/"):
            out, err = run("decode", root / "tokens", given, "--frame-ms", 20, "--format", "srt", "--out", root / "out")
            check(out.splitlines() == [f"{root}/out/{n}.srt" for n in ("one/two/y", "one/x", "x")], out)
            check(all(pathlib.Path(path).read_text().endswith("a b\n\n") for path in out.splitlines()), out)
            check(f"leaves out what are no feature files, 2 files: 'one/notes.doc', 'one/z\\x1b.wav'" in err, err)
            check("gone.npy" in err and len(err.splitlines()) == 2, err)


def test_confidence():
    """Each definition, by hand, through each command; and those that cannot be."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        rows = [[0.1, 0.1, 0.5, 0.3], [0.05, 0.05, 0.8, 0.1], [0.2, 0.6, 0.1, 0.1], [0.1, 0.1, 0.3, 0.5]]
        write_npy(root / "x.npy", rows)
        (root / "x.txt").write_text("a b\n")
        expected = {"mean": 0.65, "geometric": 0.4**0.5, "min": 0.5, "product": 0.4}
        for name, value in expected.items():
            for command in (["decode"], ["decode", "--beam", 0], ["align"]):
                out = said(*command, root / "tokens", root / "x.npy", "--confidence", name, "--format", "jsonl")
                words = json.loads(out)["words"]
                check([w["text"] for w in words] == ["a", "b"], command, words)
                check(abs(words[0]["probability"] - value) < 1e-6 and abs(words[1]["probability"] - 0.5) < 1e-6, words)
        ctm = said("decode", root / "tokens", root / "x.npy", "--frame-ms", 20, "--format", "ctm", "--confidence", "min")
        check(ctm.splitlines()[0].split()[4:] == ["a", "0.5000"], ctm)

        write_npy(root / "y.npy", [[0.2, 0, 0.5, 0.3], [0.4, 0, 0.1, 0.5]])
        out = said("decode", root / "tokens", root / "y.npy", "--confidence", "posterior", "--format", "jsonl")
        line = json.loads(out)
        check(line["text"] == "b" and len(line["alternatives"]) == 1, line)
        check(abs(line["words"][0]["probability"] - 0.37) < 1e-6, line)
        check(abs(line["characters"][0]["probability"] - 0.65) < 1e-6, line)
        run("decode", root / "tokens", root / "x.npy", "--beam", 0, "--confidence", "posterior", code=2, errs="compares the texts of a search")
        run("align", root / "tokens", root / "x.npy", "--confidence", "posterior", code=2, errs="expected one of mean")
        run("decode", root / "tokens", root / "x.npy", "--confidence", "maen", code=2, errs="'maen', expected one of mean")


def test_knowledge():
    """A language model, a lexicon, hot words: what each changes."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        # "a" and "b" are as probable as each other in the second place.
        rows = spoken([2, 0, 1, 0], 4) + [[0.02, 0.02, 0.47, 0.49]]
        write_npy(root / "x.npy", rows)
        check(said("decode", root / "tokens", root / "x.npy").strip() == "a b", "alone")
        (root / "text").write_text("a a\na a\na a a\nb\n")
        run("lm", "train", root / "text", "--order", "2", "--discount-fallback", "--out", root / "2gram.lm")
        check(said("decode", root / "tokens", root / "x.npy", "--lm", root / "2gram.lm").strip() == "a a", "model")
        (root / "lexicon").write_text("a\n")
        check(said("decode", root / "tokens", root / "x.npy", "--lexicon", root / "lexicon").strip() == "a a", "lexicon")
        (root / "alias").write_text("x\ta\ny\tb\n")
        line = json.loads(said("decode", root / "tokens", root / "x.npy", "--lexicon", root / "alias", "--format", "jsonl"))
        check(line["text"] == "x y" and [w["text"] for w in line["words"]] == ["x", "y"], line)
        check(line["words"][1]["begin"] == 4 and line["words"][1]["end"] == 5, line)
        (root / "hot").write_text("a a\t4\n")
        out = said("decode", root / "tokens", root / "x.npy", "--hot-words", root / "hot", "--nbest", 2, "--format", "jsonl")
        line = json.loads(out)
        check([a["text"] for a in line["alternatives"]] == ["a a", "a b"], line)
        best = line["alternatives"][0]
        check(abs(best["score"] - best["log_probability"] - 4) < 1e-6 and best["lm_log10"] == 0, best)

        fails("decode", root / "tokens", root / "x.npy", "--lm", root / "none", errs="none")
        run("decode", root / "tokens", root / "x.npy", "--beam", 0, "--lm", root / "2gram.lm", code=2, errs="--beam 0 is none")
        (root / "bad").write_text("a\nc\td\n")
        fails("decode", root / "tokens", root / "x.npy", "--lexicon", root / "bad", errs="bad:2: the model has no token 'd'")
        (root / "upper").write_text("A A\nB\n")
        run("lm", "train", root / "upper", "--order", "2", "--discount-fallback", "--out", root / "upper.lm")
        errs = run("decode", root / "tokens", root / "x.npy", "--lm", root / "upper.lm")[1]
        check("can spell 0 of the 2 words" in errs, errs)
        # Of the words most can be spelled, and of what is said a part.
        (root / "mixed").write_text("a b\nb ab\nba B.\nbb B.\naba B.\n")
        run("lm", "train", root / "mixed", "--order", "1", "--discount-fallback", "--out", root / "mixed.lm")
        errs = run("decode", root / "tokens", root / "x.npy", "--lm", root / "mixed.lm")[1]
        check("can spell 6 of the 7 words of the language model; the most frequent of the others: 'B.'" in errs, errs)
        errs = run("decode", root / "tokens", root / "x.npy", "--lm", root / "2gram.lm")[1]
        check("can spell" not in errs, errs)


def test_binaries_of_kenlm():
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \nw\n0\n3\n")
        write_npy(root / "x.npy", spoken([2, 3, 1, 2, 4, 1, 2, 3], 5, 0.999))
        for options in ["", "trie"]:
            (root / "m.binary").write_bytes(kenlm_binary(options)[0])
            line = json.loads(said("decode", root / "tokens", root / "x.npy", "--lm", root / "m.binary", "--nbest", 5,
                                   "--format", "jsonl"))
            best = line["alternatives"][0]
            (root / "text").write_text(best["text"] + "\n")
            query = said("lm", "query", root / "m.binary", root / "text", "--format", "jsonl").splitlines()[0]
            check(best["text"] == "w0 w3 w0", line)
            check(abs(best["lm_log10"] - json.loads(query)["log10"]) < 1e-4, options, best, query)


def test_words_that_never_occur():
    """log10 p = -inf: the search goes on with numbers, whatever it weighs."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        write_npy(root / "x.npy", spoken([2, 1, 3], 4))
        (root / "m.arpa").write_text("\\data\\\nngram 1=5\nngram 2=1\n\\1-grams:\n-inf\t<s>\n-1\t</s>\n-inf\ta\t-inf\n"
                                     "-1\tb\n-2\t<unk>\n\\2-grams:\n-1\ta a\n\\end\\\n")
        for weight in [0, 0.5, 5, 100]:
            line = json.loads(said("decode", root / "tokens", root / "x.npy", "--lm", root / "m.arpa", "--lm-weight", weight,
                                   "--nbest", 4, "--format", "jsonl"))
            for a in line["alternatives"]:
                check(math.isfinite(a["score"]) and math.isfinite(a["lm_log10"]), weight, line)
            check(("a" in line["text"]) == (weight == 0), weight, line)


def test_tuning():
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        rows = spoken([2, 0, 1, 0], 4) + [[0.02, 0.02, 0.47, 0.49]]
        for name in "xyz":
            write_npy(root / f"{name}.npy", rows)
        with open(root / "dev.jsonl", "w") as out:
            for name in "xyz":
                out.write(json.dumps({"features_filepath": f"{name}.npy", "text": "a a"}) + "\n")
        (root / "text").write_text("a a\na a\na a a\nb\n")
        run("lm", "train", root / "text", "--order", "2", "--discount-fallback", "--out", root / "2gram.lm")
        out = said("tune", root / "tokens", root / "dev.jsonl", "--lm", root / "2gram.lm")
        check("3 utterances" in out and "WER 50.00 %" in out, out)
        best = out.splitlines()[-1]
        check("(WER 0.00 %" in best, out)
        weights = best.split("best: ")[1].split("  (")[0].split()
        check(said("decode", root / "tokens", root / "x.npy", "--lm", root / "2gram.lm", *weights).strip() == "a a", best)
        run("tune", root / "tokens", root / "dev.jsonl", code=2, errs="--lm is missing")
        fails("tune", root / "tokens", root / "x.npy", "--lm", root / "2gram.lm", errs="has no text to compare with")


def test_one_that_fails():
    # The others are read, in their order, and a name cannot write on the terminal.
    with folder() as root:
        (root / "v.txt").write_text("<blank>\n \nt\no\ne\n")
        for name in "abc":
            write_npy(root / f"{name}.npy", spoken([0, 2, 2, 3], 5))
        bad = root / "b\x1b[2J.npy"
        bad.write_bytes(b"no numbers")
        out, errors = fails("decode", root / "v.txt", root / "a.npy", bad, root / "b.npy", root / "c.npy",
                            errs="b\\x1b[2J.npy")
        check([line.split("\t")[1] for line in out.splitlines()] == ["to"] * 3, out)
        check("\x1b" not in errors, repr(errors))


def test_mistakes():
    with folder() as root:
        write_npy(root / "x.npy", spoken([0, 1], 2))
        (root / "three").write_text("<blank>\na\nb\n")
        fails("decode", root / "three", root / "x.npy", errs="has 2 classes per frame")
        (root / "gap").write_text("<blank> 0\na 2\n")
        fails("decode", root / "gap", root / "x.npy", errs="class 1 has no token")
        (root / "twice").write_text("<blank>\na\na\n")
        fails("decode", root / "twice", root / "x.npy", errs="have the same token, 'a'")
        (root / "object").write_text('{"<blank>": "x"}')
        fails("decode", root / "object", root / "x.npy", errs="expected a JSON list of tokens")
        (root / "two").write_text("<blank>\na\n")
        write_npy(root / "nan.npy", [[0, 1], [0, math.nan]])
        fails("decode", root / "two", root / "nan.npy", errs="frame 1, class 1: is no number")
        write_npy(root / "raw.npy", [[0, 5], [-1, 2]])
        fails("decode", root / "two", root / "raw.npy", "--scores", "probabilities", errs="is not of probabilities")
        fails("decode", root / "two", root / "raw.npy", "--word-border", "#", errs="has no token '#' that could separate")
        check(said("decode", root / "two", root / "raw.npy").strip() == "a", "logits")
        # Of an entry of a megabyte its beginning is shown.
        huge = "\x1b[2J" + "h" * (1 << 20)
        (root / "list").write_text(f"a\ta\n{huge}\n")
        err = fails("decode", root / "two", root / "raw.npy", "--lexicon", root / "list", errs="list:2: '\\x1b[2Jhhh")[1]
        check(len(err) < 300, len(err))
        (root / "list").write_text(f"a\n{huge}\n")
        err = run("decode", root / "two", root / "raw.npy", "--hot-words", root / "list")[1]
        check("cannot spell 1 of 2 hot words: '\\x1b[2Jhhh" in err and len(err) < 300, len(err), err[:300])
        # What would change nothing.
        (root / "hot").write_text("a\n")
        for option, value, wanted in [("--lm-weight", 1.5, "--lm"), ("--unknown-score", -3, "--lm"), ("--lm-unit", "words", "--lm"),
                                      ("--hot-word-weight", 7, "--hot-words"), ("--word-score", 1, "a search: --lm"),
                                      ("--token-floor", 0.01, "a search"), ("--score-range", 9, "a search")]:
            run("decode", root / "two", root / "raw.npy", "--beam", 0, option, value, errs=f"{option} goes with {wanted}", code=2)
        run("decode", root / "two", root / "raw.npy", "--beam", 10, "--lm-weight", 1.5, errs="--lm-weight goes with --lm", code=2)
        said("decode", root / "two", root / "raw.npy", "--beam", 10, "--word-score", 1, "--token-floor", 0.01)
        said("decode", root / "two", root / "raw.npy", "--hot-words", root / "hot", "--hot-word-weight", 7)


main(globals())
