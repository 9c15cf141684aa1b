"""rondo lm train against the definition, build and query against each other."""

import gzip
import json
import pathlib
import random
import sys

from cli_support import check, fails, folder, kenlm_binary, main, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lm"))
import kneser_ney_reference as reference


def corpus(sentences, words, seed):
    """Words with frequencies like those of a language, and pairs that belong together."""
    draw = random.Random(seed)
    names = [f"w{i}" for i in range(words)]
    weights = [1 / (i + 1) for i in range(words)]
    text = []
    for _ in range(sentences):
        line = []
        for _ in range(draw.randrange(1, 12)):
            line.append(names[(names.index(line[-1]) * 7 + 1) % words] if line and draw.random() < 0.4
                        else draw.choices(names, weights)[0])
        text.append(line)
    return text


def write(path, sentences):
    path.write_text("".join(" ".join(words) + "\n" for words in sentences))


def compare(found, expected):
    check(found.keys() == expected.keys(), "other n-grams:", sorted(found.keys() ^ expected.keys())[:5])
    for gram, values in expected.items():
        for mine, right in zip(found[gram], values):
            check(abs(mine - right) <= 1e-5, gram, found[gram], values)


def test_training_is_what_the_definition_says():
    with folder() as root:
        for order, prune, seed in [(1, [], 1), (2, [], 2), (3, [], 3), (3, [0, 0, 1], 4), (3, [0, 1, 2], 5),
                                   (4, [0, 0, 0, 1], 6), (5, [], 7), (5, [0, 1], 8)]:
            text = corpus(400, 30 if seed % 2 else 300, seed)  # few words: discounts that are fixed
            write(root / "text", text)
            out = root / "m.arpa"
            pruning = ["--prune", *prune] if prune else []
            run("lm", "train", root / "text", "--out", out, "--order", order, *pruning, "--discount-fallback")
            found = reference.read_arpa(out.read_text())
            compare(found, reference.Model(text, order, prune).entries)
            # What follows any context sums to one, whether the context is known or not.
            draw = random.Random(seed)
            words = [g[0] for g in found if len(g) == 1 and g != ("<s>",)]
            contexts = [("<s>",), (), ("<unk>",)] + [tuple(draw.choices(words, k=order - 1)) for _ in range(20)]
            contexts += [g for g in found if len(g) == order - 1][:20]
            for context in contexts:
                total = sum(10 ** reference.backed_off(found, context, w) for w in words)
                check(abs(total - 1) < 1e-5, order, prune, context, total)


def test_memory_that_is_too_small_changes_nothing():
    with folder() as root:
        write(root / "text", corpus(3000, 200, 1))
        for memory in ["1G", "64K"]:
            said = run("lm", "train", root / "text", "--out", root / (memory + ".arpa"), "--order", 4,
                       "--memory", memory, "--temporary", root, "--discount-fallback")[0]
            check(("on the disk" in said) == (memory == "64K"), said)
        check((root / "1G.arpa").read_bytes() == (root / "64K.arpa").read_bytes(), "other models")
        check(sorted(p.name for p in root.iterdir()) == ["1G.arpa", "64K.arpa", "text"], "something was left")


def test_texts_of_all_kinds_and_models_of_all_kinds():
    with folder() as root:
        text = corpus(500, 30, 9)
        write(root / "text", text[:200])
        with open(root / "more.jsonl", "w") as manifest:
            for words in text[200:400]:
                manifest.write(json.dumps({"audio_filepath": "x.wav", "text": " ".join(words).upper()}) + "\n")
        with gzip.open(root / "rest.gz", "wt") as rest:
            rest.write("\n" + "\r\n".join("  ".join(words) + " ." for words in text[400:]))
        texts = [root / "text", root / "more.jsonl", root / "rest.gz"]
        for out in ["m.arpa", "m.arpa.gz", "m.lm"]:
            said = run("lm", "train", *texts, "--out", root / out, "--order", 3, "--lowercase",
                       "--strip-punctuation", "--discount-fallback")[0]
            check("500 sentences" in said and "1 empty" in said, said)
        compare(reference.read_arpa((root / "m.arpa").read_text()), reference.Model(text, 3).entries)
        check(gzip.open(root / "m.arpa.gz").read() == (root / "m.arpa").read_bytes(), "another model")
        run("lm", "build", root / "m.arpa.gz", root / "built.lm")
        check((root / "built.lm").stat().st_size == (root / "m.lm").stat().st_size, "another size")
        scores = {run("lm", "query", root / m, root / "text")[0]
                  for m in ["m.arpa", "m.arpa.gz", "m.lm", "built.lm"]}
        check(len(scores) == 1, "models of one content score differently", scores)


def test_orders_of_which_nothing_is_left():
    with folder() as root:
        text = corpus(60, 10, 10)
        write(root / "text", text)
        for order, prune in [(4, [0, 1000]), (5, [0, 0, 0, 1000])]:
            for out in ["m.arpa", "m.lm"]:
                run("lm", "train", root / "text", "--out", root / out, "--order", order, "--prune", *prune,
                    "--discount-fallback")
            found = (root / "m.arpa").read_text()
            check([f"\\{n}-grams:" in found for n in range(1, order + 2)] == [True] * order + [False], found)
            compare(reference.read_arpa(found), reference.Model(text, order, prune).entries)
            run("lm", "build", root / "m.arpa", root / "built.lm")
            scores = {run("lm", "query", root / m, root / "text")[0] for m in ["m.arpa", "m.lm", "built.lm"]}
            check(len(scores) == 1, "models of one content score differently", scores)


def test_white_space_of_any_kind_separates_words():
    """In lines of ASCII, of which nothing is changed, as in others."""
    with folder() as root:
        out = root / "m.arpa"
        for spaces, other in [("\f\v\r\t", "d"), ("\f\v\r\t", "\u00e9"), ("\u00a0\u2028\u3000\u0085", "d")]:
            a, b, c, d = spaces
            lines = [f"a{a}b{b}c{c}a{d}{other}", f"{a}a{a}{a}b{d}", f"{a}{b}{c}", f"{other}{d}a{c} {a}"] * 3
            (root / "text").write_bytes("".join(line + "\n" for line in lines).encode())
            words = [["a", "b", "c", "a", other], ["a", "b"], [other, "a"]] * 3
            said = run("lm", "train", root / "text", "--out", out, "--order", 3, "--discount-fallback")[0]
            check("9 sentences" in said and "3 empty" in said, said)
            compare(reference.read_arpa(out.read_text(encoding="utf-8")), reference.Model(words, 3).entries)
            said = run("lm", "query", out, root / "text", "--summary")[0]
            check("0 unknown" in said, said)
            run("lm", "train", root / "text", "--characters", "--out", out, "--order", 3, "--discount-fallback")
            letters = [[token for word in line for token in ("<space>", word)][1:] for line in words]
            compare(reference.read_arpa(out.read_text(encoding="utf-8")), reference.Model(letters, 3).entries)


def test_characters():
    with folder() as root:
        (root / "text").write_text("ab  b\u00e9\n" * 3 + "b a\n", encoding="utf-8")
        out = root / "m.arpa"
        run("lm", "train", root / "text", "--characters", "--out", out, "--order", 3, "--discount-fallback")
        text = [["a", "b", "<space>", "b", "\u00e9"]] * 3 + [["b", "<space>", "a"]]
        compare(reference.read_arpa(out.read_text(encoding="utf-8")), reference.Model(text, 3).entries)
        said = run("lm", "query", out, root / "text", "--characters", "--summary")[0]
        check("4 sentences, 22 tokens" in said and "0 unknown" in said, said)
        # Of one to four bytes, the first and the last of as many among them.
        wide = "a\x7e\u00a1\u07ff\u0800\uffee\U00010000\U0001f642\U00020000\U00100000"
        (root / "text").write_text(f"{wide}\n{wide[::-1]}\n" * 2, encoding="utf-8")
        run("lm", "train", root / "text", "--characters", "--out", out, "--order", 3, "--discount-fallback")
        compare(reference.read_arpa(out.read_text(encoding="utf-8")), reference.Model([list(wide), list(wide[::-1])] * 2, 3).entries)


def test_query_says_what_it_found():
    with folder() as root:
        (root / "m.arpa").write_text("\\data\\\nngram 1=4\nngram 2=1\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n-0.5\ta\n"
                                       "-2\t<unk>\n\\2-grams:\n-0.25\t<s> a\n\\end\\\n")
        (root / "text").write_text("a\n\nb a\n")
        said = run("lm", "query", root / "m.arpa", root / "text", "--words", "--format", "jsonl")[0]
        lines = [json.loads(line) for line in said.splitlines()]
        check([line["log10"] for line in lines[:3]] == [-1.25, -1.5, -4], said)
        check(lines[2]["words"][0] == {"token": "b", "log10": -2.5, "ngram": 1, "known": False}, said)
        totals = lines[3]["totals"]
        check(totals["tokens"] == 6 and totals["unknown"] == 1 and totals["log10"] == -6.75, said)
        check(abs(totals["perplexity"] - 10 ** (6.75 / 6)) < 1e-9, said)
        check(abs(totals["perplexity_without_unknown"] - 10 ** (4.25 / 5)) < 1e-9, said)


def test_binaries_of_kenlm_are_queried():
    with folder() as root:
        for options in ["", "trie", "-q 8 trie", "-a 64 trie"]:
            content, sentence, log10 = kenlm_binary(options)
            (root / "m.binary").write_bytes(content)
            (root / "text").write_text(sentence + "\n")
            said = run("lm", "query", root / "m.binary", root / "text", "--format", "jsonl")[0]
            check(abs(json.loads(said.splitlines()[0])["log10"] - log10) < 1e-4, options, said, log10)
        (root / "whole.gz").write_bytes(gzip.compress(content))
        fails("lm", "query", root / "whole.gz", root / "text", errs="this is a binary of KenLM, expected ARPA")
        (root / "m.binary").write_bytes(content[:-1])
        fails("lm", "query", root / "m.binary", root / "text", errs="m.binary: is damaged: ")


def test_what_cannot_be_is_said_in_a_sentence():
    with folder() as root:
        (root / "text").write_text("a b\n")
        (root / "bad").write_text("a b\na <s> b\n")
        (root / "empty").write_text("\n \n")
        (root / "m.jsonl").write_text('{"text": "a"}\n{"audio_filepath": "x"}\n')
        out = ["--out", root / "m.lm"]
        fails("lm", "train", root / "text", *out, errs="the discounts of order 1 cannot be estimated: no 1-gram has a")
        fails("lm", "train", root / "bad", *out, errs=f"{root}/bad:2: the word '<s>' is one of the model's own")
        fails("lm", "train", root / "empty", *out, errs="has no sentences")
        fails("lm", "train", root / "m.jsonl", *out, errs="m.jsonl:2: ")
        fails("lm", "train", root / "none", *out, errs="none: cannot be opened: No such file")
        fails("lm", "train", root / "text", *out, "--prune", 1, errs="words are not pruned")
        fails("lm", "train", root / "text", *out, "--prune", 0, 2, 1, errs="order 3 is pruned at 1, expected at least 2")
        fails("lm", "train", root / "text", "--out", root / "text", errs="would overwrite a text")
        fails("lm", "build", root / "text", root / "m.lm", errs="is no language model")
        (root / "k.binary").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(100))
        fails("lm", "query", root / "k.binary", root / "text", errs="k.binary: is a binary of KenLM of a machine with")
        fails("lm", "build", root / "k.binary", root / "m.lm", errs="k.binary:1: this is a binary of KenLM, expected ARPA")
        fails("lm", "query", root / "nowhere.lm", root / "text", errs="nowhere.lm: cannot be opened")


main(globals())
