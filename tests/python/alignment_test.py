"""forced_align() against all paths of small cases, merge_tokens(), and align()."""

import itertools
import unittest

import numpy as np
import rondo
from support import Foreign


def collapsed(path, blank):
    return [label for label, _ in itertools.groupby(path) if label != blank]


def best_path(logp, labels, blank):
    """The largest sum of scores of all paths that say the labels, and such a path."""
    paths = [p for p in itertools.product(range(logp.shape[1]), repeat=len(logp)) if collapsed(p, blank) == list(labels)]
    sums = [sum(logp[t, c] for t, c in enumerate(p)) for p in paths]
    at = int(np.argmax(sums))
    return sums[at], paths[at]


class ForcedAlign(unittest.TestCase):
    def test_against_all_paths(self):
        draw = np.random.default_rng(4)
        for blank, labels in ((0, [1]), (0, [1, 2]), (0, [2, 2]), (2, [0, 1, 0]), (3, [1, 1, 0]), (0, []), (1, [3, 2])):
            for frames in (5, 6):
                x = draw.normal(0, 2, (frames, 4)).astype(np.float32)
                x -= np.logaddexp.reduce(x, axis=1, keepdims=True)
                total, path = best_path(x, labels, blank)
                found = rondo.forced_align(x[None], np.array([labels], np.int64), blank=blank)
                self.assertEqual(found.labels.shape, (1, frames))
                self.assertEqual(found.labels[0].tolist(), list(path))
                self.assertAlmostEqual(float(found.scores.sum()), float(total), places=4)
                np.testing.assert_array_equal(found.scores[0], x[np.arange(frames), path])

    def test_lengths_and_classes(self):
        draw = np.random.default_rng(5)
        x = draw.normal(0, 3, (3, 40, 9000)).astype(np.float32)
        targets = draw.integers(1, 9000, (3, 10))
        targets[0, :4] = (6399, 6400, 6401, 8999)  # where the characters that stand for classes go on elsewhere
        lengths, counts = [40, 30, 21], [10, 7, 0]
        found = rondo.forced_align(Foreign(x), targets, lengths, counts)
        for i in range(3):
            self.assertEqual(collapsed(found.labels[i, :lengths[i]].tolist(), 0), targets[i, :counts[i]].tolist())
            self.assertFalse(found.labels[i, lengths[i]:].any() or found.scores[i, lengths[i]:].any())
        alone = rondo.forced_align(x[1:2, :30], targets[1:2, :7])
        np.testing.assert_array_equal(alone.labels[0], found.labels[1, :30])

    def test_spans(self):
        spans = rondo.merge_tokens([0, 2, 2, 0, 2, 3, 3, 0], np.arange(8.0))
        self.assertEqual(spans, [rondo.TokenSpan(2, 1, 3, 1.5), rondo.TokenSpan(2, 4, 5, 4.0), rondo.TokenSpan(3, 5, 7, 5.5)])
        self.assertEqual([len(s) for s in spans], [2, 1, 2])
        self.assertEqual(rondo.merge_tokens([1, 1], [0.0, 0.0], blank=1), [])
        self.assertEqual(rondo.merge_tokens([], []), [])

    def test_errors(self):
        x = np.zeros((1, 4, 3), np.float32)
        for arguments, error, words in (((x[0], [[1]]), rondo.InvalidError, "log_probs: shape [4, 3]"),
                                        ((x, [[1, 3]]), rondo.InvalidError, "targets[0]: label 3 at 1"),
                                        ((x, [[1, 0]]), rondo.InvalidError, "not the blank"),
                                        ((x, [[1, 1, 2, 2]]), rondo.InvalidError, "need 6 frames, there are 4"),
                                        ((x, [[1], [1]]), rondo.InvalidError, "targets: 2 sequences"),
                                        ((x, [[1]], [5]), rondo.InvalidError, "input_lengths[0]: 5"),
                                        ((x.astype(int), [[1]]), TypeError, "log_probs: dtype int64"),
                                        ((x * np.nan, [[1]]), rondo.InvalidError, "NaN")):
            with self.subTest(words), self.assertRaises(error) as caught:
                rondo.forced_align(*arguments)
            self.assertIn(words, str(caught.exception))


class Text(unittest.TestCase):
    def test_times_of_words(self):
        said = [0, 1, 1, 0, 2, 3, 0, 2, 2, 0]  # "ab", a space, "b"
        x = np.full((10, 4), -5, np.float32)
        x[np.arange(10), said] = 5
        found = rondo.align(x, ["<blank>", "a", "b", " "], "ab b", frame_seconds=0.5)
        self.assertEqual([(w.text, w.begin, w.end) for w in found.words], [("ab", 0.5, 2.5), ("b", 3.5, 4.5)])
        self.assertEqual(found.score, 0)
        self.assertLess(rondo.align(x, ["<blank>", "a", "b", " "], "ba a").score, -10)
        with self.assertRaisesRegex(rondo.InvalidError, "x"):
            rondo.align(x, ["<blank>", "a", "b", " "], "axb")
        self.assertEqual(rondo.align(x, ["<blank>", "a", "b", " "], "axb b", skip_unspellable=True).words[1].begin, 7)


if __name__ == "__main__":
    unittest.main()
