"""Models, streams and training: what they find equals what the command finds, in any thread, and memory comes back."""

import concurrent.futures
import ctypes
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import rondo
from rondo import _library
from rondo._wav import read_wav
from support import (FOLDER, RATE, ROOT, Foreign, command, corpus, distance, int16, model, settings, tones, write_manifest,
                     write_pgm, write_wav)


FORK = """
import os, sys, rondo
recognizer = rondo.Recognizer(sys.argv[1], threads=2)
text = recognizer.transcribe(sys.argv[2]).text
child = os.fork()
if child == 0:
    os._exit(0 if text and recognizer.transcribe(sys.argv[2]).text == text else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Library(unittest.TestCase):
    def test_structures_have_the_sizes_of_the_header(self):
        sizes = dict(line.split() for line in (ROOT / "tests/embed/c/sizes.txt").read_text().splitlines())
        ours = {s.C_NAME: s for s in vars(_library).values() if isinstance(s, type) and hasattr(s, "C_NAME")}
        enumerations = {"rondo_status", "rondo_kind", "rondo_reduction"}
        self.assertEqual(set(ours), set(sizes) - enumerations)
        for name, structure in ours.items():
            self.assertEqual(ctypes.sizeof(structure), int(sizes[name]), name)

    def test_functions_are_those_of_the_library(self):
        lines = (ROOT / "engine/c/rondo.map").read_text().splitlines()
        names = {line.strip(" ;")[6:] for line in lines if line.strip().startswith("rondo_")}
        self.assertEqual(names, set(_library._CHECKED) | set(_library._OTHERS))

    def test_package(self):
        folder = pathlib.Path(rondo.__file__).parent
        self.assertNotIn(ROOT, folder.parents)
        self.assertTrue((folder / "py.typed").exists())
        self.assertEqual(command("--version").split()[-1].split("-")[0], rondo.__version__.split("-")[0])
        failed = subprocess.run([sys.executable, "-m", "rondo", "transcrib"], stderr=subprocess.PIPE)
        self.assertEqual(failed.returncode, 2)
        script = pathlib.Path(sys.executable).with_name("rondo")
        self.assertEqual(subprocess.check_output([script, "--version"], text=True), command("--version"))
        for name in rondo.__all__:
            self.assertTrue(getattr(rondo, name).__doc__, name)

    def test_another_library(self):
        done = subprocess.run([sys.executable, "-c", "import rondo"], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "RONDO_LIBRARY": "/none/there.so"})
        self.assertIn("ImportError: rondo: /none/there.so is not a librondo.so.0", done.stderr)


class Wav(unittest.TestCase):
    def test_formats(self):
        path = FOLDER / "format.wav"
        FOLDER.mkdir(exist_ok=True)
        x = np.array([0, 0.5, -0.5, 0.25, -1])
        wide = np.rint(x * 2**23).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3]
        for samples, kind, bits in ((np.rint(x * 127 + 128).astype(np.uint8), 1, 8), ((x * 2**15).astype("<i2"), 1, 16),
                                    (np.ascontiguousarray(wide), 1, 24), ((x * 2**31).astype("<i4"), 1, 32),
                                    (x.astype("<f4"), 3, 32), (x, 3, 64)):
            for extensible in (False, True):
                write_wav(path, samples, 11025, kind, bits, extensible=extensible)
                found, rate = read_wav(path)
                self.assertEqual((rate, found.dtype), (11025, np.float32))
                np.testing.assert_allclose(found, x, atol=0.01 if bits == 8 else 0)
        write_wav(path, (np.stack([x, x / 2], axis=1) * 2**15).astype("<i2"), channels=2)
        np.testing.assert_array_equal(read_wav(path)[0], np.float32(x * 0.75))

    def test_errors(self):
        path = FOLDER / "wrong.wav"
        write_wav(path, np.zeros(8, np.int16))
        whole = path.read_bytes()
        for content, words in ((b"fLaC", "is not a RIFF/WAVE file"), (whole[:-3], "ends after 13 of 16 bytes"),
                               (whole[:30], "wrong.wav: "), (whole[:36], "holds no samples"),
                               (whole[:34] + b"\x0c\0" + whole[36:], "format 1 of 12 bits")):
            path.write_bytes(content)
            with self.assertRaises(rondo.InvalidError) as caught:
                read_wav(path)
            self.assertIn(words, str(caught.exception))


class Recognition(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.recognizer = rondo.Recognizer(model())

    def test_equals_the_command(self):
        lines = [json.loads(line) for line in (corpus() / "test.jsonl").read_text().splitlines()]
        said = command("transcribe", model(), corpus() / "test.jsonl", "--format", "jsonl").splitlines()
        errors = 0
        batch = self.recognizer.transcribe_batch([corpus() / line["audio_filepath"] for line in lines])
        for line, written, together in zip(lines, map(json.loads, said), batch):
            found = self.recognizer.transcribe(corpus() / line["audio_filepath"])
            self.assertEqual(found.text, written["text"])
            self.assertEqual(len(found.words), len(written["words"]))
            for ours, theirs in zip(found.words + found.characters, written["words"] + written["characters"]):
                self.assertEqual(ours.text, theirs["text"])
                np.testing.assert_allclose([ours.begin, ours.end, ours.probability],
                                           [theirs["begin"], theirs["end"], theirs["probability"]], atol=6e-4)
            np.testing.assert_array_equal(together.outputs, found.outputs)
            self.assertEqual(" ".join(w.text for w in found.words), found.text)
            errors += distance(line["text"], found.text)
        self.assertLessEqual(errors, 5)  # of some 60 letters
        out = FOLDER / "logits"
        command("transcribe", model(), corpus() / "9000.wav", "--format", "npy", "--out", out)
        theirs = np.load(next(out.glob("*.npy")))
        np.testing.assert_array_equal(self.recognizer.transcribe(corpus() / "9000.wav").outputs, theirs)

    def test_kinds_of_input(self):
        text, sound = tones(9100)
        expected = self.recognizer.transcribe(sound)
        self.assertLessEqual(distance(text, expected.text), 1)
        self.assertEqual(expected.outputs.shape[1], self.recognizer.info.outputs)
        self.assertEqual(self.recognizer.transcribe(int16(sound)).text, expected.text)
        wide = np.repeat(sound, 3)
        for view in (Foreign(sound), wide[::3], sound[::-1].copy()[::-1], sound.astype(np.float64), sound.astype(">f4")):
            np.testing.assert_array_equal(self.recognizer.transcribe(view).outputs, expected.outputs)
        self.assertLessEqual(distance(self.recognizer.transcribe(np.repeat(sound, 2), 2 * RATE).text, text), 2)
        features = np.random.default_rng(0).normal(size=(50, 20))
        self.assertGreater(len(self.recognizer.transcribe(features).outputs), 10)

    def test_info(self):
        info = self.recognizer.info
        self.assertEqual(info[:6], ("ctc", "samples", RATE, 20, 6, True))
        self.assertTrue(0.009 < info.frame_seconds < 0.1 and info.weights > 1000)
        self.assertEqual(sorted(self.recognizer.classes), ["", " ", "a", "b", "c", "d"])
        self.assertEqual(self.recognizer.classes[0], "")
        copy = rondo.Recognizer(pathlib.Path(model()).read_bytes())
        self.assertEqual(copy.info, info)

    def test_decoder_and_alignment(self):
        _, sound = tones(9101)
        found = self.recognizer.transcribe(sound)
        decoder = rondo.Decoder(self.recognizer.vocabulary, nbest=3, hot_words={"dada": 200})
        searched = self.recognizer.transcribe(sound, decoder=decoder)
        self.assertIn("dada", searched.text)
        self.assertEqual(searched.text, decoder.decode(found.outputs).text)
        self.assertEqual([a.text for a in searched.alternatives][0], searched.text)
        self.assertEqual(len(searched.alternatives), 3)
        self.assertEqual(self.recognizer.transcribe(sound).text, found.text)
        aligned = rondo.align(found.outputs, self.recognizer.vocabulary, found.text,
                              frame_seconds=self.recognizer.info.frame_seconds)
        self.assertEqual([w.text for w in aligned.words], [w.text for w in found.words])
        self.assertGreater(aligned.score, -1)

    def test_images(self):
        folder = FOLDER / "lines"
        folder.mkdir(exist_ok=True)
        draw, images = np.random.default_rng(3), {}
        for name, count in (("train", 12), ("dev", 4)):
            lines = []
            for i in range(count):
                text = "".join(draw.choice(list("xy"), 3))
                image = images[f"{name}{i}"] = np.full((24, 60), 255, np.uint8)
                for at, letter in enumerate(text):
                    image[4 if letter == "x" else 12:20, 8 + 16 * at:14 + 16 * at] = 0
                write_pgm(folder / f"{name}{i}.pgm", image)
                lines.append({"image_filepath": f"{name}{i}.pgm", "text": text})
            write_manifest(folder / f"{name}.jsonl", lines)
        rondo.train(settings(folder, features={"type": "image", "rate": 16000, "bins": 40, "height": 24},
                             model={"bidirectional": True}, training={"epochs": 2}))
        recognizer = rondo.Recognizer(folder / "run")
        self.assertEqual(recognizer.info.kind, "image")
        command("transcribe", folder / "run", folder / "dev0.pgm", "--format", "npy", "--out", folder / "logits")
        wide = np.repeat(images["dev0"], 2, axis=1)
        for view in (images["dev0"], wide[:, ::2]):
            np.testing.assert_array_equal(recognizer.transcribe(view).outputs, np.load(folder / "logits" / "dev0.npy"))

    def test_classes(self):
        folder = FOLDER / "classes"
        folder.mkdir(exist_ok=True)
        for name, first, count in (("train", 0, 40), ("dev", 40, 10)):
            lines = []
            for i in range(first, first + count):
                text, sound = tones(i)
                write_wav(folder / f"{i}.wav", int16(sound))
                lines.append({"audio_filepath": f"{i}.wav", "label": "with b" if "b" in text else "other"})
            write_manifest(folder / f"{name}.jsonl", lines)
        rondo.train({"task": "classify", **settings(folder, training={"epochs": 5})})
        recognizer = rondo.Recognizer(folder / "run")
        self.assertEqual((recognizer.info.task, recognizer.classes), ("classify", ["other", "with b"]))
        paths = [folder / f"{i}.wav" for i in range(40, 50)]
        said = map(json.loads, command("predict", folder / "run", *paths, "--format", "jsonl").splitlines())
        for found, written in zip(recognizer.transcribe_batch(paths), said):
            self.assertEqual((found.text, recognizer.classes[found.class_index]), (written["class"],) * 2)
            self.assertAlmostEqual(found.probability, written["probability"], places=3)
            self.assertEqual((found.outputs.shape, found.words), ((1, 2), []))
        with self.assertRaisesRegex(rondo.InvalidError, "not a ctc model"):
            recognizer.vocabulary

    def test_errors(self):
        _, sound = tones(9102)
        broken = sound.copy()
        broken[17] = np.nan
        for work, error, words in (
                (lambda: rondo.Recognizer("/none/there"), rondo.InvalidError, "/none/there"),
                (lambda: rondo.Recognizer(b"nothing"), rondo.InvalidError, "the model"),
                (lambda: rondo.Recognizer(model(), device="gpu"), rondo.InvalidError, "device 'gpu'"),
                (lambda: rondo.Recognizer(5), TypeError, "model: int"),
                (lambda: self.recognizer.transcribe(sound[None, None]), rondo.InvalidError, "recording: shape [1, 1, "),
                (lambda: self.recognizer.transcribe(sound.astype(complex)), TypeError, "recording: dtype complex128"),
                (lambda: self.recognizer.transcribe(sound, 0), rondo.InvalidError, "0 Hz"),
                (lambda: self.recognizer.transcribe(sound, 2**32 + RATE), rondo.InvalidError, "sample_rate: 42949"),
                (lambda: self.recognizer.transcribe(sound, 8000.5), TypeError, "sample_rate: float"),
                (lambda: self.recognizer.stream(end_silence="long"), TypeError, "end_silence: str"),
                (lambda: rondo.Recognizer(model(), threads=2**32), rondo.InvalidError, "threads: 4294967296"),
                (lambda: self.recognizer.transcribe_batch([sound, broken]), rondo.InvalidError, "input 1: "),
                (lambda: self.recognizer.transcribe_batch([sound, "/none.wav"]), FileNotFoundError, "/none.wav"),
                (lambda: self.recognizer.transcribe(np.zeros((9, 7), np.float32)), rondo.InvalidError, "7 columns"),
                (lambda: self.recognizer.transcribe(np.zeros((9, 7), np.uint8)), rondo.InvalidError, "recordings"),
                (lambda: rondo.Recognizer(model(), threads=-1).transcribe(sound), rondo.InvalidError, "threads: -1"),
                (lambda: self.recognizer.stream(chunk_seconds=0), rondo.InvalidError, "chunks of 0 seconds")):
            with self.subTest(words), self.assertRaises(error) as caught:
                work()
            self.assertIn(words, str(caught.exception))
        self.assertEqual(self.recognizer.transcribe_batch([]), [])

    def test_threads(self):
        sounds = [tones(9200 + i)[1] for i in range(16)]
        alone = [self.recognizer.transcribe(s).text for s in sounds]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                self.assertEqual([r.text for r in pool.map(self.recognizer.transcribe, sounds)], alone)

    def test_other_threads_run_meanwhile(self):
        long = np.concatenate([tones(9300 + i)[1] for i in range(30)] * 6)

        def longest_pause():
            """Of a thread that counts, as a share of the time that another one transcribes."""
            times, is_over = [], threading.Event()

            def work():
                times.append(time.monotonic())
                self.recognizer.transcribe(long)
                is_over.set()

            worker = threading.Thread(target=work)
            worker.start()
            while not is_over.is_set():
                times.append(time.monotonic())
            worker.join()
            times.append(time.monotonic())
            return max(np.diff(sorted(times))) / (times[-1] - times[0])

        # On a busy machine a thread may have to wait for others, too.
        self.assertTrue(any(longest_pause() < 0.5 for _ in range(8)))

    def test_progress(self):
        long = np.concatenate([tones(9300 + i)[1] for i in range(30)] * 6)
        seconds, calls = len(long) / self.recognizer.info.sample_rate, []
        self.assertGreater(seconds, 60)
        text = self.recognizer.transcribe(long).text
        self.assertEqual(self.recognizer.transcribe(long, progress=lambda *told: calls.append(told)).text, text)
        done = [told[0] for told in calls]
        self.assertEqual((done[0], done), (0, sorted(done)))
        self.assertTrue(any(0 < d < seconds for d in done), done)
        self.assertTrue(all(abs(whole - seconds) < 1e-6 for _, whole in calls), calls)

        def stop(done, _):
            if done > 0:
                raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            self.recognizer.transcribe(long, progress=stop)
        self.assertEqual(self.recognizer.transcribe(long).text, text)  # nobody is asked any more

    def test_interrupt(self):
        self.assertIsNotNone(signal.getsignal(signal.SIGINT))
        long = np.concatenate([tones(9300 + i)[1] for i in range(30)] * 12)
        # Between two calls of the progress, as Ctrl-C comes.
        with self.assertRaises(KeyboardInterrupt):
            self.recognizer.transcribe(long, progress=lambda done, _: done == 0 and os.kill(os.getpid(), signal.SIGINT))

    def test_fork(self):
        subprocess.run([sys.executable, "-c", FORK, model(), corpus() / "9000.wav"], check=True, timeout=200)

    def test_closed(self):
        _, sound = tones(9103)
        recognizer = rondo.Recognizer(model())
        text, stream = recognizer.transcribe(sound).text, recognizer.stream(end_silence=0, longest=0)
        vocabulary = recognizer.vocabulary
        decoder = rondo.Decoder(vocabulary)
        result = recognizer.transcribe(sound, decoder=decoder)
        recognizer.close()
        recognizer.close()
        vocabulary.close()
        self.assertTrue(recognizer.closed)
        stream.accept(sound)  # goes on without its recognizer
        self.assertEqual([r.text for r in stream.finish()], [text])
        self.assertEqual(decoder.decode(result.outputs).text, result.text)
        decoder.close()
        stream.close()
        for work, name in ((lambda: recognizer.transcribe(sound), "Recognizer"), (recognizer.stream, "Recognizer"),
                           (lambda: stream.accept(sound), "Stream"), (stream.partial, "Stream"),
                           (lambda: decoder.decode(result.outputs), "Decoder"),
                           (lambda: rondo.decode(result.outputs, vocabulary), "Vocabulary")):
            with self.assertRaisesRegex(rondo.InvalidError, f"this {name} is closed"):
                work()
        with rondo.Recognizer(model()) as other:
            self.assertEqual(other.transcribe(sound).text, text)
        self.assertTrue(other.closed)

    def test_memory_comes_back(self):
        _, sound = tones(9104)
        scores = self.recognizer.transcribe(sound).outputs

        def once(i):
            recognizer = rondo.Recognizer(model())
            recognizer.transcribe(sound)
            stream = recognizer.stream()
            stream.accept(sound[:2000])
            group = recognizer.stream_group()
            together = [group.stream(), group.stream()]
            group.cycle = [group, *together]
            rondo.Decoder(recognizer.vocabulary, nbest=3).decode(scores)
            recognizer.cycle = [recognizer, stream]  # which only the collector ends
            if i % 2:
                recognizer.close()
            if i % 20 == 0:  # Python decides otherwise how many are held at once, which is no leak
                gc.collect()

        def resident():
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

        for i in range(200):
            once(i)
        before = resident()
        for i in range(1000):
            once(i)
        self.assertLess(resident() - before, 3)  # MiB; a model alone has 0.1, a thousand of them 100


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.recognizer = rondo.Recognizer(model())

    def test_one_utterance(self):
        _, sound = tones(9400)
        whole = self.recognizer.transcribe(sound)
        stream = self.recognizer.stream(chunk_seconds=0.1, end_silence=0, longest=0)
        for _ in range(2):
            told = ""
            for at in range(0, len(sound), 333):
                told += stream.accept(sound[at:at + 333])
                partial = stream.partial()
                self.assertTrue(partial.text.startswith(partial.stable))
            self.assertIsNone(stream.endpoint())
            self.assertTrue(len(told) > 2 and whole.text.startswith(told))
            found, = stream.finish()
            self.assertEqual(found.text, whole.text)
        stream.accept(int16(sound)[:len(sound) // 2])
        stream.reset()
        self.assertEqual(stream.finish(), [])

    def test_group(self):
        sounds = [tones(9410 + i)[1] for i in range(3)]
        alone = []
        for sound in sounds:
            stream = self.recognizer.stream(end_silence=0, longest=0)
            alone.append((stream.accept(sound), [r.text for r in stream.finish()]))
        group = self.recognizer.stream_group()
        streams = [group.stream(end_silence=0, longest=0) for _ in sounds]
        told = [""] * len(sounds)
        for at in range(0, max(map(len, sounds)), 777):  # the shorter ones hear nothing at last
            for i, text in enumerate(group.accept(streams, [sound[at:at + 777] for sound in sounds])):
                told[i] += text
        other = self.recognizer.stream()
        for work, error, words in (
                (lambda: group.accept(streams, sounds[:2]), rondo.InvalidError, "2 arrays, expected one for each of 3"),
                (lambda: group.accept([other], sounds[:1]), rondo.InvalidError, r"streams\[0\]: is of another group"),
                (lambda: group.accept(streams[:1] * 2, sounds[:2]), rondo.InvalidError, "twice"),
                (lambda: group.accept(streams[:1], [[1, 2]]), TypeError, r"samples\[0\]: dtype int64")):
            with self.assertRaisesRegex(error, words):
                work()
        group.close()
        with self.assertRaisesRegex(rondo.InvalidError, "this StreamGroup is closed"):
            group.accept([], [])
        # Streams go on without their group.
        self.assertEqual([(t, [r.text for r in s.finish()]) for t, s in zip(told, streams)], alone)

    def test_endpoints(self):
        _, sound = tones(9401)
        pause = np.tile(np.float32([0.001, -0.001]), RATE)
        stream, told, found = self.recognizer.stream(), "", []
        for part in (sound, pause, sound, pause):
            told += stream.accept(part)
            while (utterance := stream.endpoint()) is not None:
                found.append(utterance)
        self.assertEqual(len(found), 2)
        self.assertEqual([r.text for r in found], told.splitlines())
        self.assertTrue(0 <= found[0].times[0] < found[0].times[1] < found[1].times[0])
        with self.assertRaisesRegex(rondo.InvalidError, "sample"):
            stream.accept(np.full(9, np.inf))
        with self.assertRaisesRegex(TypeError, "samples: dtype int64"):
            stream.accept([1, 2])


class Training(unittest.TestCase):
    def test_callbacks_stop_and_resume(self):
        chosen = settings(corpus(), training={"checkpoint_dir": FOLDER / "again", "epochs": 2})
        steps, validations, messages = [], [], []
        hear = {"on_step": steps.append, "on_validation": validations.append, "on_message": messages.append}
        begun = rondo.train(chosen, **hear, stop=lambda: len(steps) >= 3)
        self.assertTrue(begun.stopped and begun.steps == len(steps) == steps[-1].step)
        ended = rondo.train(chosen, **hear, resume=True)
        self.assertTrue(not ended.stopped and ended.epochs == 2 and ended.steps == len(steps))
        self.assertEqual([v.step for v in validations][-1], ended.steps)
        self.assertTrue(messages and steps[0].loss > steps[-1].loss > 0 and steps[0].learning_rate > 0)
        self.assertAlmostEqual(min(v.metric for v in validations), ended.best_metric)
        self.assertIn("weights", command("info", "--model", FOLDER / "again" / "model.safetensors"))

    def test_toml(self):
        path = FOLDER / "again.toml"
        path.write_text(f'[data]\ntrain = "{corpus()}/dev.jsonl"\ndev = "{corpus()}/dev.jsonl"\n[features]\nrate = 8000\n'
                        f'[model]\nhidden = 8\nlayers = 1\n[training]\nepochs = 1\ncheckpoint_dir = "{FOLDER}/short"\n')
        self.assertEqual(rondo.train(path).epochs, 1)
        path.write_text("[training]\nepoch = 3\n")
        with self.assertRaisesRegex(rondo.InvalidError, "again.toml"):
            rondo.train(path)
        with self.assertRaisesRegex(rondo.InvalidError, "epoch"):
            rondo.train({"training": {"epoch": 3}})
        with self.assertRaisesRegex(TypeError, "settings: training.epochs is a set"):
            rondo.train({"training": {"epochs": {3}}})

    def test_exceptions_of_callbacks(self):
        chosen = settings(corpus(), training={"checkpoint_dir": FOLDER / "broken"})

        heard = []

        def fail(step):
            heard.append(step.step)
            if step.step == 2:
                raise ZeroDivisionError("mine")

        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            rondo.train(chosen, on_step=fail)
        self.assertEqual(heard, [1, 2])
        begun = rondo.train(chosen, resume=True, stop=lambda: True)  # goes on where it was left
        self.assertIn(begun.steps, (2, 3))

    def test_interrupt(self):
        chosen = settings(corpus(), training={"checkpoint_dir": FOLDER / "interrupted"})
        with self.assertRaises(KeyboardInterrupt):
            rondo.train(chosen, on_step=lambda s: s.step == 2 and os.kill(os.getpid(), signal.SIGINT))
        self.assertTrue(any((FOLDER / "interrupted").glob("checkpoint-*")))


if __name__ == "__main__":
    unittest.main()
