"""Training with batches of one's own."""

import unittest

import numpy as np
import rondo
from support import FOLDER

SETTINGS = {"model": {"hidden": 24, "layers": 1, "subsample": 1, "dropout": 0}, "optimizer": {"lr": 0.02},
            "training": {"seed": 3}}


def examples(count, seed):
    """Unit vectors that stay for four frames, and a frame of nothing between."""
    random, batch = np.random.default_rng(seed), []
    for _ in range(count):
        labels = random.integers(1, 4, 4)
        frames = np.zeros((20, 4), np.float32)
        for place, label in enumerate(labels):
            frames[5 * place : 5 * place + 4, label] = 1
        batch.append((frames, labels))
    return batch


def session(**changes):
    return rondo.Session(SETTINGS, **{"features": 4, "alphabet": "abc", "threads": 1, **changes})


class SessionTest(unittest.TestCase):
    def test_it_learns_and_becomes_a_model(self):
        dev = examples(4, 7)
        with session() as one, session() as other:
            first = one.evaluate(dev)
            self.assertEqual((first.step, first.gradient_norm, first.infeasible), (0, 0, 0))
            for i in range(120):
                r = one.train(examples(16, 100 + i))
            self.assertTrue(r.step == 120 and r.gradient_norm > 0 and not r.skipped)
            last = one.evaluate(dev)
            self.assertLess(last.loss, 0.2 * first.loss)
            path = FOLDER / "session.safetensors"
            one.save(path)
            other.load(path)
            self.assertEqual(other.evaluate(dev).loss, last.loss)
            other.set_learning_rate(0)
            other.train(dev)
            self.assertEqual(other.evaluate(dev).loss, last.loss)
        recognizer = rondo.Recognizer(path)
        for frames, labels in dev:
            self.assertEqual(recognizer.transcribe(frames).text, "".join("abc"[label - 1] for label in labels))

    def test_any_strides_and_lists(self):
        frames, labels = examples(1, 3)[0]
        one = session()
        want = one.evaluate([(frames, labels)]).loss
        wide = np.zeros((40, 9))
        wide[::2, 8:0:-2] = frames
        self.assertEqual(one.evaluate([(wide[::2, 8:0:-2], [int(label) for label in labels])]).loss, want)

    def test_what_is_wrong(self):
        frames, labels = examples(1, 3)[0]
        one = session()
        for batch, error, text in (
                ([], rondo.InvalidError, "without examples"),
                ([(frames, [4])], rondo.InvalidError, "example 0: label 0 is 4, expected 1 to 3"),
                ([(frames, labels), (frames[:, :3], labels)], rondo.InvalidError, "example 1: .* 3 columns"),
                ([(frames[:0], labels)], rondo.InvalidError, "0 frames"),
                ([(frames[0], labels)], rondo.InvalidError, "features of example 0: shape"),
                ([(frames, [labels])], rondo.InvalidError, "labels of example 0: shape"),
                ([(frames, [1.5])], TypeError, "labels of example 0: dtype float64"),
                ([frames], TypeError, "expected a pair")):
            with self.assertRaisesRegex(error, text):
                one.train(batch)
        self.assertEqual(one.evaluate([(frames[:2], labels)]).infeasible, 1)
        for changes, text in (({"alphabet": ""}, "the alphabet is empty"), ({"alphabet": "aa"}, "alphabet"),
                              ({"features": 0}, "features: 0"), ({"device": "gpu"}, "device 'gpu'"),
                              ({"threads": -1}, "threads: -1"), ({"features": 2**32 + 4}, "features: 4294967300")):
            with self.assertRaisesRegex(rondo.InvalidError, text):
                session(**changes)
        with self.assertRaisesRegex(rondo.InvalidError, "another alphabet"):
            one.save(FOLDER / "abc.safetensors")
            session(alphabet="abd").load(FOLDER / "abc.safetensors")
        one.close()
        with self.assertRaisesRegex(rondo.InvalidError, "closed"):
            one.train([(frames, labels)])


if __name__ == "__main__":
    unittest.main()
