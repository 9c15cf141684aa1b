"""Vocabularies as other programs ship them, and texts as Windows writes them, in rondo decode."""

import json

from cli_support import check, fails, folder, main, run
from outputs_support import said, spoken, write_npy


def test_vocabularies():
    with folder() as root:
        write_npy(root / "a.npy", spoken([0, 2, 2, 3, 0, 1, 4, 0, 4], 5))
        for content, text in [
            ("<blank>\n \nt\no\ne\n", "to ee"),
            ("<pad>\n|\nt\no\ne\n", "to ee"),
            ("<blk> 0\n<space> 1\nt 2\no 3\ne 4\n", "to ee"),
            ('["", "|", "t", "o", "e"]', "to ee"),
            ('{"e": 4, "[PAD]": 0, "o": 3, "|": 1, "t": 2}', "to ee"),
            ("<blk>\n▁a\n▁t\no\ne\n", "to aee"),
            ("<eps>\nSIL\nT\nOW\nIY\n", "T OW SIL IY IY"),
            ("<eps>\nx\nt\no\ne\n", "toxee"),
            ("[PAD]\n<unk>\nt\no\ne\n", "toee"),
        ]:
            (root / "tokens").write_text(content)
            for beam in 0, 20:
                out = said("decode", root / "tokens", root / "a.npy", "--beam", beam)
                check(out.strip() == text, repr(out), content, beam)
        (root / "tokens").write_text("b\na\nt\no\ne\n")
        out = said("decode", root / "tokens", root / "a.npy", "--blank", 0, "--word-border", "a")
        check(out.strip() == "to ee", out)
        fails("decode", root / "tokens", root / "a.npy", errs="which of its 5 tokens is the blank")
        fails("decode", root / "tokens", root / "a.npy", "--blank", 5, errs="the blank is class 5, and there are 5")


def test_vocabularies_as_others_ship_them():
    """Lists of k2, fairseq, SentencePiece, WordPiece and Hugging Face, with the blank wherever it is."""
    with folder() as root:
        def decode(content, labels, classes, *options, name="tokens"):
            (root / name).write_text(content)
            write_npy(root / "a.npy", spoken(labels, classes))
            texts = [said("decode", root / name, root / "a.npy", "--beam", beam, *options).strip() for beam in (0, 20)]
            check(texts[0] == texts[1], texts, content)
            return texts[0]

        k2 = "<blk> 0\n<sos/eos> 1\n▁a 2\nb 3\n#1 5\n#0 4\n"
        check(decode(k2, [0, 2, 3, 0, 2], 4) == "ab a", "k2")
        check(decode("<blk>\n#\n#0\n#x\n", [1, 2, 3], 4) == "# #0 #x", "number signs that are tokens")
        pieces = "<unk>\t0\n<s>\t0\n</s>\t0\n▁t\t-1.5\no\t-2.25\n▁\t-3\n"
        check(decode(pieces, [3, 4, 6, 5, 4], 7, "--blank", "last") == "to o", "SentencePiece, unigrams")
        ranks = "<unk>\t0\n▁t\t-0\no\t-1\n▁\t-2\n"
        check(decode(ranks, [1, 2, 4, 3, 2], 5, "--blank", "last") == "to o", "SentencePiece, byte pairs")
        check(decode("a\nb\n<BLANK>\n", [0, 2, 0], 3, "--blank", "last") == "aa", "a blank that is the last")
        check(decode("\ufeff<blk>\r\na\r\n", [0, 1], 2) == "a", "a byte order mark, CR LF")
        check(decode('\ufeff["", "a"]', [0, 1], 2) == "a", "a byte order mark before JSON")
        for blank in ("[blank]", "<blank_id>", "<CTC>", "ε", "<epsilon>"):
            check(decode(f"a\n{blank}\n|\nb\n", [0, 1, 2, 3], 4) == "a b", blank)
        words = "[PAD]\n[UNK]\nre\n##ad\n##ing\nit\n[CLS]\n"
        check(decode(words, [2, 3, 4, 0, 5, 2], 7) == "reading it re", "WordPiece")
        for counts in ("| 94802\nE 51860\nT 38431\n", "| 1\nE 1\nT 1\n", "E 7\n| 7\nT 900\n"):
            order = [line.split()[0] for line in counts.splitlines()]
            labels = [4 + order.index(t) for t in "ET|T"]
            check(decode(counts, [0, labels[0], labels[1], 0, *labels[2:]], 7) == "ET T", counts)
        check(decode("<ctc_blank> 9\nE 5\nT 4\n", [5, 4, 5, 6], 7) == "EET", "a blank of its own")
        # Bytes make up characters; what makes none is told.
        fallback = "<blk>\n▁x\ny\n" + "".join(f"<0x{b:02X}>\n" for b in range(256))
        check(decode(fallback, [1, 3 + 0xE7, 3 + 0x88, 3 + 0xBF, 2], 259) == "x爿y", "bytes")
        write_npy(root / "a.npy", spoken([1, 3 + 0xE7, 3 + 0x88, 2, 3 + 0x41], 259))
        out, err = run("decode", root / "tokens", root / "a.npy")
        check(out == "x\ufffdyA\n" and "a.npy: bytes that make no character" in err, out, err)
        (root / "hot").write_text("x爿y\n")
        rows = spoken([1, 3 + 0xE7, 3 + 0x88, 3 + 0xBF, 2], 259)
        rows[3] = [0.49 if c == 3 + 0xBE else 0.4 if c == 3 + 0xBF else 0.11 / 257 for c in range(259)]
        write_npy(root / "a.npy", rows)
        check(said("decode", root / "tokens", root / "a.npy").strip() == "x" + b"\xe7\x88\xbe".decode() + "y", "as heard")
        check(said("decode", root / "tokens", root / "a.npy", "--hot-words", root / "hot").strip() == "x爿y", "hot bytes")
        (root / "a.txt").write_text("x爿y\n")
        line = json.loads(said("align", root / "tokens", root / "a.npy", "--format", "jsonl"))
        check([w["text"] for w in line["words"]] == ["x爿y"] and line["words"][0]["end"] == 5, line)

        # More classes than tokens.
        write_npy(root / "a.npy", spoken([1, 0, 2, 1], 4))
        (root / "tokens").write_text("<blk>\na\nb\n")
        fails("decode", root / "tokens", root / "a.npy", errs=["has 4 classes per frame", "names 3", "--ignore-unnamed", "--blank last"])
        check(said("decode", root / "tokens", root / "a.npy", "--ignore-unnamed").strip() == "aba", "unnamed")
        write_npy(root / "a.npy", spoken([1, 0, 2, 1], 3))
        (root / "tokens").write_text("a\nb\n_\n")
        fails("decode", root / "tokens", root / "a.npy", "--blank", "last", errs="or is it class 2 (--blank 2)?")
        run("decode", root / "tokens", root / "a.npy", "--blank", "lst", code=2, errs="expected a class, 0 or more, 'first' or 'last'")
        # A dictionary of characters without the blank, which is before them.
        check(decode("a\nb\n", [1, 0, 2, 2, 0, 1], 3, "--blank", "first") == "aba", "a blank before the tokens")
        check(decode("<blk>\na\nb\n", [1, 0, 2], 3, "--blank", "first") == "ab", "a blank that is the first")


def test_tokenizers_of_hugging_face():
    """tokenizer.json in place of vocab.json: pieces with scores, or with classes; and what no list of tokens is."""
    with folder() as root:
        def decode(tokenizer, *labels, name="tokenizer.json", **more):
            (root / name).write_text(json.dumps(tokenizer))
            write_npy(root / "a.npy", spoken(labels, 5))
            return run("decode", root if name == "tokenizer.json" else root / name, root / "a.npy", **more)

        pieces = {"type": "Unigram", "vocab": [["<unk>", 0], ["▁t", -1.5], ["o", -2], ["▁", -3]]}
        added = [{"id": 4, "content": "<pad>", "special": True}, {"id": 0, "content": "<unk>", "special": True}]
        of_pieces = {"added_tokens": added, "model": pieces, "decoder": {"type": "Metaspace"}}
        for name in "tokenizer.json", "other.json":
            check(decode(of_pieces, 1, 2, 4, 2, 3, 2, name=name)[0] == "too o\n", name)
        of_classes = {"model": {"type": "BPE", "vocab": {"<pad>": 0, "|": 1, "t": 2, "o": 3}, "merges": []},
                      "added_tokens": [{"id": 4, "content": "!"}], "decoder": {"type": "CTC"}}
        check(decode(of_classes, 2, 3, 0, 3, 4, 1, 2)[0] == "too! t\n", "classes")
        bytes_alone = {**of_classes, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}}
        decode(bytes_alone, 2, code=1, errs="tokenizer.json: its tokens stand for bytes (ByteLevel)")
        for broken in ({"model": {}}, {"model": {"vocab": [[]]}}, {"model": {"vocab": [["a", 0]]}, "added_tokens": [{"id": 3, "content": "b"}]},
                       {"model": {"vocab": {"a": 0, "b": 0}}}, {"model": {"vocab": 3}}):
            decode(broken, 0, code=1, errs="tokenizer.json: ")
        (root / "tokenizer_config.json").write_text('{"pad_token": "|", "word_delimiter_token": "t"}')
        check(decode(of_classes, 2, 3, 1, 3, 4, 0)[0] == "oo!\n", "roles")
        (root / "tokens.yaml").write_text("token_list:\n- <blank>\n- a\n")
        fails("decode", root / "tokens.yaml", root / "a.npy", errs="tokens.yaml: is YAML, expected tokens one a line")
        (root / "bpe.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c")
        fails("decode", root / "bpe.model", root / "a.npy", errs=["is a model of SentencePiece", "spm_export_vocab"])


def test_texts_of_windows():
    """UTF-16, with a mark or without, wherever a person or another program wrote a text."""
    with folder() as root:
        rows = spoken([0, 2, 0, 4, 0, 1, 3, 0, 2], 5)
        rows[1] = [0, 0, 0.51, 0.49, 0]
        write_npy(root / "a.npy", rows)
        for encoding in "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be":
            def text(name, content):
                (root / name).write_bytes(content.replace("\n", "\r\n").encode(encoding))
                return root / name
            tokens = text("tokens", "<blk>\n|\na\nb\nä\n")
            check(said("decode", tokens, root / "a.npy") == "aä ba\n", encoding)
            check(said("decode", tokens, root / "a.npy", "--hot-words", text("hot", "bä\t1\n")) == "bä ba\n", encoding)
            check(said("decode", tokens, root / "a.npy", "--lexicon", text("lexicon", "bä\nba\n")) == "bä ba\n", encoding)
            shown = said("align", tokens, root / "a.npy", text("a.srt", "1\n00:00:01,000 --> 00:00:02,000\naä ba\n"), "--format", "srt", "--frame-ms", 20)
            check(shown.splitlines()[2] == "aä ba", shown)
            listed = text("dev.jsonl", '{"features_filepath": "a.npy", "text": "aä ba"}\n')
            check(said("decode", tokens, listed) == "a.npy\taä ba\n", encoding)
        run("lm", "train", text("corpus", "a b\n"), "--order", 2, "--out", root / "x.lm", code=1, errs="corpus: is UTF-16, expected UTF-8 ('iconv")


main(globals())
