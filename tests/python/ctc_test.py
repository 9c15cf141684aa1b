"""ctc_loss() against a recursion in float64, finite differences, and numbers known by hand."""

import unittest

import numpy as np
import rondo
from rondo._arrays import strided
from support import Foreign


def reference(logits, labels, blank, is_log=False):
    """-ln p of labels by the forward recursion over logits [frames, classes], in plain float64."""
    x = np.asarray(logits, np.float64)
    logp = x if is_log else x - np.logaddexp.reduce(x, axis=1, keepdims=True)
    states = [blank]
    for label in labels:
        states += [label, blank]
    alpha = np.full(len(states), -np.inf)
    for t, row in enumerate(logp):
        new = np.full(len(states), -np.inf)
        for s, state in enumerate(states):
            ways = [alpha[s]] + [alpha[s - 1]] * (s > 0)
            if s > 1 and state not in (blank, states[s - 2]):
                ways.append(alpha[s - 2])
            new[s] = (0 if t == 0 and s < 2 else np.logaddexp.reduce(ways) if t > 0 else -np.inf) + row[state]
        alpha = new
    return -np.logaddexp.reduce(alpha[-2:]) if len(logp) else (0.0 if not len(labels) else np.inf)


def batch(seed=1, blank=0):
    draw = np.random.default_rng(seed)
    frames, classes = 12, 6
    lengths, counts = np.array([12, 9, 7, 12]), np.array([4, 3, 0, 5])
    others = [c for c in range(classes) if c != blank]
    targets = draw.choice(others, (4, 5))
    targets[0, 1] = targets[0, 0]  # a label twice
    return draw.normal(0, 2, (frames, 4, classes)), targets, lengths, counts


def losses(logits, targets, lengths, counts, blank=0, is_log=False):
    return np.array([reference(logits[:lengths[n], n], targets[n, :counts[n]], blank, is_log) for n in range(len(counts))])


class Loss(unittest.TestCase):
    def test_against_the_recursion(self):
        for blank in (0, 3, 5):
            x, targets, lengths, counts = batch(blank, blank)
            expected = losses(x, targets, lengths, counts, blank)
            for dtype, bound in ((np.float64, 1e-11), (np.float32, 1e-5)):
                found = rondo.ctc_loss(x.astype(dtype), targets, lengths, counts, blank, "none")
                np.testing.assert_allclose(found.loss, expected, rtol=bound)
                self.assertEqual(found.gradient.dtype, dtype)
            total = rondo.ctc_loss(x, targets, lengths, counts, blank, "sum").loss
            mean = rondo.ctc_loss(x, targets, lengths, counts, blank).loss
            self.assertAlmostEqual(total, expected.sum(), places=9)
            self.assertAlmostEqual(mean, (expected / np.maximum(counts, 1)).mean(), places=9)

    def test_by_hand(self):
        # Of three classes, all alike: "a" has six alignments of 27 in three frames.
        found = rondo.ctc_loss(np.zeros((3, 3)), [1], reduction="sum")
        self.assertAlmostEqual(found.loss, np.log(27 / 6), places=12)
        self.assertEqual(found.gradient.shape, (3, 3))

    def test_targets_one_behind_the_other(self):
        x, targets, lengths, counts = batch()
        flat = np.concatenate([row[:n] for row, n in zip(targets, counts)])
        padded = rondo.ctc_loss(x, targets, lengths, counts)
        joined = rondo.ctc_loss(x, flat, lengths, counts)
        self.assertEqual(padded.loss, joined.loss)
        np.testing.assert_array_equal(padded.gradient, joined.gradient)

    def test_log_probabilities(self):
        x, targets, lengths, counts = batch()
        logp = x - np.logaddexp.reduce(x, axis=2, keepdims=True)
        found = rondo.ctc_loss(logp, targets, lengths, counts, reduction="sum", log_softmax=True)
        self.assertAlmostEqual(found.loss, losses(x, targets, lengths, counts).sum(), places=9)
        # Minus how often each class is expected: of a frame, once in all.
        np.testing.assert_allclose(found.gradient.sum(axis=2)[:7], -1, atol=1e-9)

    def test_gradient_by_differences(self):
        x, targets, lengths, counts = batch()
        for reduction in ("mean", "sum"):
            slope = rondo.ctc_loss(x, targets, lengths, counts, reduction=reduction).gradient
            for index in np.ndindex(x.shape):
                h = np.zeros_like(x)
                h[index] = 1e-5
                up, down = (rondo.ctc_loss(x + s * h, targets, lengths, counts, reduction=reduction, gradient=False).loss
                            for s in (1, -1))
                self.assertLess(abs((up - down) / 2e-5 - slope[index]), 1e-8)
            np.testing.assert_array_equal(slope[9:, 1], 0)
        self.assertIsNone(rondo.ctc_loss(x, targets, lengths, counts, gradient=False).gradient)

    def test_strides_are_taken_as_they_are(self):
        x, targets, lengths, counts = batch()
        dense = rondo.ctc_loss(x, targets, lengths, counts, reduction="none")
        wide = np.zeros((24, 4, 12))
        wide[::2, :, ::2] = x
        views = {"classes first": np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0),
                 "batch first": np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2),
                 "every second": wide[::2, :, ::2], "backwards": x[::-1].copy()[::-1], "foreign": Foreign(x)}
        for name, view in views.items():
            with self.subTest(name):
                if name != "foreign":
                    self.assertIs(strided(view)[0], view)
                found = rondo.ctc_loss(view, targets, lengths, counts, reduction="none")
                np.testing.assert_array_equal(found.loss, dense.loss)
                np.testing.assert_array_equal(found.gradient, dense.gradient)
        same = np.broadcast_to(x[:, :1], x.shape)  # strides of 0
        found = rondo.ctc_loss(same, targets[:1].repeat(4, 0), reduction="none", target_lengths=[4] * 4)
        self.assertEqual(len(set(found.loss)), 1)

    def test_labels_that_do_not_fit(self):
        x = np.zeros((2, 1, 3))
        found = rondo.ctc_loss(x, [[1, 1]], reduction="none")
        self.assertTrue(np.isinf(found.loss[0]) and not found.gradient.any())
        self.assertEqual(rondo.ctc_loss(x, [[1, 1]], zero_infinity=True).loss, 0)

    def test_errors(self):
        x, targets, lengths, counts = batch()
        wrong = targets.copy()
        wrong[1, 0] = 0
        long = lengths.copy()
        long[2] = 13
        for arguments, options, error, words in (
                ((x.astype(np.float16), targets), {}, TypeError, "logits: dtype float16"),
                ((x[0, 0], targets), {}, rondo.InvalidError, "logits: shape [6]"),
                ((x, targets, lengths, counts), {"reduction": "average"}, rondo.InvalidError, "reduction: 'average'"),
                ((x, targets, lengths, counts), {"blank": 6}, rondo.InvalidError, "blank 6"),
                ((x, targets, lengths, counts), {"blank": 2**32}, rondo.InvalidError, "blank: 4294967296"),
                ((x, targets, lengths, counts), {"threads": 2**32 + 1}, rondo.InvalidError, "threads: 4294967297"),
                ((x, wrong, lengths, counts), {}, rondo.InvalidError, "sequence 1"),
                ((x, targets, long, counts), {}, rondo.InvalidError, "lengths[2] is 13"),
                ((x, targets, lengths[:3], counts), {}, rondo.InvalidError, "input_lengths: 3 numbers, expected 4"),
                ((x, targets, lengths, [4, 3, 0, 6]), {}, rondo.InvalidError, "target_lengths[3]: 6"),
                ((x, targets[0], lengths), {}, rondo.InvalidError, "target_lengths"),
                ((x, targets[0], lengths, counts), {}, rondo.InvalidError, "12 labels in all, targets hold 5"),
                ((x, targets[:2], lengths, counts), {}, rondo.InvalidError, "targets: 2 sequences"),
                ((x, targets * 1.0, lengths, counts), {}, TypeError, "targets: dtype float64"),
                ((x, targets.astype(np.int64) + 2**40, lengths, counts), {}, rondo.InvalidError, "32-bit integers")):
            with self.subTest(words), self.assertRaises(error) as caught:
                rondo.ctc_loss(*arguments, **options)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
