"""Decoders against all texts of small cases, and against `rondo decode`; pyctcdecode's and torchaudio's names."""

import itertools
import json
import unittest

import numpy as np
import rondo
from rondo.pyctcdecode import BeamSearchDecoderCTC, build_ctcdecoder
from rondo.torchaudio import ctc_decoder
from support import FOLDER, Foreign, command

TOKENS = ["<pad>", "|", "a", "b", "c"]
ARPA = """\\data\\
ngram 1=6
ngram 2=2

\\1-grams:
-1 <unk>
-99 <s> -0.25
-1 </s>
-0.5 ab -0.125
-1.5 cab
-0.75 ba

\\2-grams:
-0.0625 <s> cab
-0.25 ab ba

\\end\\
"""


def softmax(x):
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)




def outputs(seed, frames=60):
    return np.random.default_rng(seed).normal(0, 2.5, (frames, len(TOKENS))).astype(np.float32)


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = FOLDER / "decoding"
        (cls.folder / "hub" / "language_model").mkdir(parents=True, exist_ok=True)
        cls.arpa = cls.folder / "words.arpa"
        cls.arpa.write_text(ARPA)
        cls.vocabulary = cls.folder / "vocab.json"
        cls.vocabulary.write_text(json.dumps(TOKENS))
        cls.logits = [outputs(seed) for seed in range(8)]
        cls.files = []
        for i, x in enumerate(cls.logits):
            cls.files.append(cls.folder / f"{i}.npy")
            np.save(cls.files[-1], x)
        hub = cls.folder / "hub"
        (hub / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(TOKENS)}))
        (hub / "alphabet.json").write_text(json.dumps({"labels": ["", " ", "a", "b", "c"], "is_bpe": False}))
        (hub / "language_model" / "words.arpa").write_text(ARPA)
        (hub / "language_model" / "unigrams.txt").write_text("ab\nba\ncab\n")
        cls.write_weights(alpha=1.25, beta=0.5, unk_score_offset=-2.0, score_boundary=True)

    @classmethod
    def write_weights(cls, **weights):
        (cls.folder / "hub" / "language_model" / "attrs.json").write_text(json.dumps(weights))

    def by_command(self, vocabulary, *options):
        lines = command("decode", vocabulary, *self.files, *options).splitlines()
        self.assertEqual(len(lines), len(self.files))
        return [line.partition("\t")[2] for line in lines]


class Decoding(Files):
    def test_against_all_texts(self):
        for seed in range(6):
            x = outputs(seed, frames=5)[:, [0, 2, 3, 4]]  # without a border: what is said in a row
            p = softmax(x.astype(np.float64))
            found = {}
            for path in itertools.product(range(4), repeat=5):
                text = "".join("?abc"[c] for c, _ in itertools.groupby(path) if c != 0)
                found[text] = found.get(text, 0) + np.prod(p[np.arange(5), path])
            ranked = sorted(found, key=found.get, reverse=True)
            r = rondo.decode(x, ["<blank>", "a", "b", "c"], beam=2000, nbest=3, word_score=0.0)
            self.assertEqual(r.text, ranked[0])
            self.assertEqual([a.text for a in r.alternatives], ranked[:3])
            for a in r.alternatives:
                self.assertAlmostEqual(a.score, np.log(found[a.text]), places=4)

    def test_a_blank_before_or_behind_the_tokens(self):
        x = outputs(7)[:, [0, 2, 3, 4]]
        whole = rondo.decode(x, ["<blank>", "a", "b", "c"]).text
        self.assertEqual(rondo.decode(x, rondo.Vocabulary(["a", "b", "c"], blank="first")).text, whole)
        turned = np.ascontiguousarray(x[:, [1, 2, 3, 0]])
        self.assertEqual(rondo.decode(turned, rondo.Vocabulary(["a", "b", "c"], blank="last")).text, whole)

    def test_equals_the_command(self):
        self.assertEqual(rondo.Decoder(TOKENS, language_model=self.arpa).decode(self.logits[0]).text,
                         rondo.decode(self.logits[0], TOKENS, language_model=rondo.LanguageModel(self.arpa)).text)
        for options, words in (({}, []), ({"beam": 0}, ["--beam", "0"]), ({"beam": 20}, ["--beam", "20"]),
                               ({"language_model": rondo.LanguageModel(self.arpa), "lm_weight": 0.75, "word_score": 1.0},
                                ["--lm", self.arpa, "--lm-weight", "0.75", "--word-score", "1"])):
            expected = self.by_command(self.vocabulary, *words)
            self.assertEqual([rondo.decode(x, self.vocabulary, **options).text for x in self.logits], expected)
            self.assertEqual([r.text for r in rondo.decode_batch(self.logits, TOKENS, **options)], expected)
            self.assertGreater(len(set(expected)), 4)
        hot = self.folder / "hot.txt"
        hot.write_text("cc\t9\n")
        decoder = rondo.Decoder(rondo.Vocabulary(TOKENS)).with_hot_words({"cc": 9})
        found = [decoder.decode(x).text for x in self.logits]
        self.assertEqual(found, self.by_command(self.vocabulary, "--beam", "100", "--hot-words", hot))
        self.assertIn(" cc", " ".join(found))

    def test_folder_of_hugging_face(self):
        hub = self.folder / "hub"
        decoder = rondo.Decoder.from_pretrained(hub)
        expected = self.by_command(hub)
        self.assertEqual([decoder.decode(x).text for x in self.logits], expected)
        other = rondo.Decoder.from_pretrained(hub, word_score=6.0)
        self.assertNotEqual([other.decode(x).text for x in self.logits], expected)
        theirs = BeamSearchDecoderCTC.load_from_dir(hub)
        self.assertEqual(theirs.decode_batch(None, self.logits, token_min_logp=-100), expected)
        try:
            for weights in ({"score_boundary": False}, {"alpha": 2.0, "unk_score_offset": -1.0}, {}):
                self.write_weights(**weights)
                decoder = rondo.Decoder.from_pretrained(hub)
                self.assertEqual([decoder.decode(x).text for x in self.logits], self.by_command(hub))
            known = hub / "language_model" / "unigrams.txt"
            known.write_text("ab\r\nba\n")
            decoder = rondo.Decoder.from_pretrained(hub)
            fewer = [decoder.decode(x).text for x in self.logits]
            self.assertEqual(fewer, self.by_command(hub))
            self.assertNotEqual(fewer, [rondo.Decoder.from_pretrained(hub, known_words=["ab", "ba", "cab", "c"]).decode(x).text
                                        for x in self.logits])
            known.write_text("ab\nba\ncab\n")
            (hub / "language_model" / "attrs.json").write_text("[]")
            with self.assertRaisesRegex(rondo.InvalidError, "attrs.json"):
                rondo.Decoder.from_pretrained(hub)
        finally:
            self.write_weights(alpha=1.25, beta=0.5, unk_score_offset=-2.0, score_boundary=True)

    def test_words_alone(self):
        for x in self.logits:
            found = rondo.decode(x, TOKENS, words=["ab", "cab"])
            self.assertLessEqual(set(found.text.split()), {"ab", "cab"})
            self.assertEqual([w.text for w in found.words], found.text.split())

    def test_batches(self):
        padded = np.zeros((3, 60, 5), np.float32)
        lengths = [60, 40, 0]
        for i, n in enumerate(lengths):
            padded[i, :n] = self.logits[i][:n]
        found = rondo.decode_batch(Foreign(padded), TOKENS, lengths, threads=2)
        alone = [rondo.decode(self.logits[i][:n], TOKENS) for i, n in enumerate(lengths)]
        self.assertEqual([r.text for r in found], [r.text for r in alone])
        self.assertEqual(found[2].text, "")
        wide = np.zeros((120, 10), np.float32)
        wide[::2, ::2] = self.logits[0]
        self.assertEqual(rondo.decode(wide[::2, ::2], TOKENS).text, rondo.decode(self.logits[0], TOKENS).text)
        same = np.broadcast_to(np.eye(5, dtype=np.float32)[2] * 9, (4, 5))  # one row in memory
        self.assertEqual(rondo.decode(same, TOKENS).text, "a")

    def test_language_model(self):
        lm = rondo.LanguageModel(self.arpa)
        np.testing.assert_allclose(lm.scores("cab ab ba x"), [-0.0625, -0.5, -0.25, -1, -1], atol=1e-6)
        self.assertAlmostEqual(lm.score(["cab", "ab"], end=False), -0.5625, places=6)
        self.assertEqual(rondo.LanguageModel(self.arpa.read_bytes()).score("ab"), lm.score("ab"))
        with self.assertRaisesRegex(rondo.InvalidError, "mine"):
            rondo.LanguageModel(b"\\data\\\n", name="mine")

    def test_errors(self):
        x = self.logits[0]
        for work, error, words in (
                (lambda: rondo.decode(x[:, :4], TOKENS), rondo.InvalidError, "4 classes, expected the 5"),
                (lambda: rondo.decode(x[0], TOKENS), rondo.InvalidError, "scores: shape [5], expected [frames, classes]"),
                (lambda: rondo.decode(x.astype(int), TOKENS), TypeError, "scores: dtype int64"),
                (lambda: rondo.decode(x * np.nan, TOKENS), rondo.InvalidError, "frame 0 holds NaN"),
                (lambda: rondo.decode(x, TOKENS, frame_seconds=0), rondo.InvalidError, "frame_seconds 0"),
                (lambda: rondo.decode(x, TOKENS, beam=0, nbest=2), rondo.InvalidError, "a beam of 0"),
                (lambda: rondo.decode(x, TOKENS, beams=5), TypeError, "beams"),
                (lambda: rondo.decode(x, TOKENS, beam=2**32 + 5), rondo.InvalidError, "beam: 4294967301"),
                (lambda: rondo.decode(x, TOKENS, beam=5.5), TypeError, "beam: float, expected int"),
                (lambda: rondo.decode(x, TOKENS, lm_weight="5,5"), TypeError, "lm_weight: str, expected a number"),
                (lambda: rondo.decode(x, TOKENS, hot_words={"a": None}), TypeError, "hot_words: NoneType"),
                (lambda: rondo.decode(x, TOKENS, frame_seconds="1s"), TypeError, "frame_seconds: str"),
                (lambda: rondo.Vocabulary(TOKENS, blank=-2), rondo.InvalidError, "blank: -2"),
                (lambda: rondo.Vocabulary(TOKENS, blank=2**32), rondo.InvalidError, "blank: 4294967296"),
                (lambda: rondo.decode(x, TOKENS, hot_words="abc"), TypeError, "hot_words: 'abc'"),
                (lambda: rondo.decode_batch(x[None], TOKENS, [61]), rondo.InvalidError, "lengths[0]: 61"),
                (lambda: rondo.Vocabulary(["a", "b"]), rondo.InvalidError, "blank"),
                (lambda: rondo.Vocabulary(["a", 5]), TypeError, "tokens[1]: int"),
                (lambda: rondo.Vocabulary(["a", "b\0"]), rondo.InvalidError, "tokens[1]: holds a zero byte"),
                (lambda: rondo.Vocabulary(TOKENS, blank="middle"), rondo.InvalidError, "blank: 'middle'"),
                (lambda: rondo.Vocabulary("/none/there"), rondo.InvalidError, "/none/there"),
                (lambda: rondo.LanguageModel("/none/there"), rondo.InvalidError, "/none/there")):
            with self.subTest(words), self.assertRaises(error) as caught:
                work()
            self.assertIn(words, str(caught.exception))
        self.assertTrue(issubclass(rondo.InvalidError, ValueError) and issubclass(rondo.NoMemoryError, MemoryError))
        self.assertTrue(issubclass(rondo.InvalidError, rondo.Error) and issubclass(rondo.NoMemoryError, rondo.Error))


class OtherNames(Files):
    def test_build_ctcdecoder(self):
        labels = ["", " ", "a", "b", "c"]
        decoder = build_ctcdecoder(labels, str(self.arpa), unigrams=["ab", "ba", "cab"], alpha=0.75, beta=1.0)
        expected = self.by_command(self.vocabulary, "--lm", self.arpa, "--lm-weight", "0.75", "--word-score", "1",
                                   "--unknown-score", str(-10 * 0.75 * np.log(10)), "--token-floor", str(np.exp(-5)))
        self.assertEqual([decoder.decode(x) for x in self.logits], expected)
        self.assertEqual(decoder.decode_batch(None, self.logits), expected)
        beams = decoder.decode_beams(self.logits[0])
        self.assertEqual(beams[0][0], expected[0])
        self.assertGreater(len(beams), 5)
        scores = [b.lm_score for b in beams]
        self.assertEqual(scores, sorted(scores, reverse=True))
        text, _, frames, _, _ = beams[0]
        self.assertEqual(" ".join(word for word, _ in frames), text)
        for _, (begin, end) in frames:
            self.assertTrue(0 <= begin < end <= 60)
        self.assertEqual(decoder.decode_beams_batch(None, self.logits[:1])[0][0][1], frames)
        hot = decoder.decode(self.logits[0], hotwords=["cc"], hotword_weight=50)
        self.assertIn("cc", hot.split())

    def test_labels(self):
        x = self.logits[0]
        plain = build_ctcdecoder(["", " ", "a", "b", "c"]).decode(x)
        self.assertEqual(build_ctcdecoder(["[PAD]", "|", "a", "b", "c"]).decode(x), plain)
        self.assertEqual(build_ctcdecoder(["_", "|", "a", "b", "c"]).decode(x), plain)
        last = build_ctcdecoder([" ", "a", "b", "c"])  # the blank comes behind
        self.assertEqual(last.decode(np.roll(x, -1, axis=1)), plain)
        p = softmax(x.astype(np.float64))
        self.assertEqual(build_ctcdecoder(["", " ", "a", "b", "c"]).decode(p.astype(np.float32)), plain)
        pieces = build_ctcdecoder(["<pad>", "\u2581a", "b", "\u2581c"])
        said = np.eye(4, dtype=np.float32)[[1, 0, 2, 3, 3]] * 10
        self.assertEqual(pieces.decode(said), "ab c")
        for work, words in ((lambda: last.decode(x, lm_start_state=3), "lm_start_state"),):
            with self.assertRaisesRegex(rondo.InvalidError, words):
                work()

    def test_ctc_decoder(self):
        tokens = ["-", "|", "a", "b", "c"]
        lexicon = self.folder / "lexicon.txt"
        lexicon.write_text("ab a b |\nba b a |\ncab c a b |\n")
        decoder = ctc_decoder(str(lexicon), tokens, lm=str(self.arpa), nbest=3, lm_weight=1.5, word_score=0.5)
        found = decoder(np.stack(self.logits))
        expected = self.by_command(self.vocabulary, "--lm", self.arpa, "--lm-weight", str(1.5 / np.log(10)),
                                   "--word-score", "0.5", "--lexicon", lexicon, "--unknown-score", "0", "--beam", "50")
        self.assertEqual([" ".join(hypotheses[0].words) for hypotheses in found], expected)
        best = found[0][0]
        self.assertEqual([w for w in "".join(decoder.idxs_to_tokens(best.tokens)).split("|") if w], best.words)
        self.assertTrue((np.diff(best.timesteps) > 0).all() and len(found[0]) == 3)
        lexicon.write_text("ab a b |\nAB b b |\n")
        for arguments, words in (((str(lexicon), tokens), "lexicon.txt:2: 'AB' is spelled 'b b |'"),
                                 ((None, ["<b>", "a"]), "blank_token: '-'"), ((None, tokens, "lm"), "without a lexicon")):
            with self.assertRaises(rondo.InvalidError) as caught:
                ctc_decoder(*arguments)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
