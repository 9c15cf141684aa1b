"""The programs of docs/python.md do what the page says."""

import importlib.util
import re
import shutil
import subprocess
import sys
import unittest

import numpy as np
import rondo
from support import FOLDER, ROOT, command, corpus, model

BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ARPA = "\\data\\\nngram 1=5\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-1 </s>\n-0.5 ab\n-1.5 cd\n\n\\end\\\n"


class Documented(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        cls.programs = dict(BLOCK.findall(page))
        cls.blocks = page.count("```python\n")
        cls.folder = FOLDER / "documented"
        shutil.copytree(corpus(), cls.folder, ignore=shutil.ignore_patterns("run"), dirs_exist_ok=True)
        shutil.copy(model(), cls.folder)
        # One of several words.
        recognizer = rondo.Recognizer(model())
        spoken = next(p for p in sorted(corpus().glob("9*.wav")) if " " in recognizer.transcribe(p).text)
        shutil.copy(spoken, cls.folder / "a.wav")
        (cls.folder / "words.arpa").write_text(ARPA)
        (cls.folder / "tokens.json").write_text('["<blank>", " ", "a", "b", "c", "d"]')
        (cls.folder / "hot.txt").write_text("dada\t200\n")
        np.save(cls.folder / "logits.npy", recognizer.transcribe(spoken).outputs)
        cls.classes = recognizer.classes
        cls.text = command("transcribe", model(), cls.folder / "a.wav").strip()

    def run_program(self, name):
        """What a program of the page writes, in lines."""
        source = self.folder / name
        source.write_text(self.programs.pop(name), encoding="utf-8")
        return subprocess.check_output([sys.executable, source], cwd=self.folder, text=True).splitlines()

    def test_all(self):
        self.assertEqual(self.blocks, len(self.programs))
        self.assertEqual(self.classes, ["", " ", "a", "b", "c", "d"])  # as the page has them
        self.assertGreater(len(self.text), 3)

        heard = self.run_program("hear.py")
        self.assertEqual(heard[0], self.text)
        self.assertEqual([line.split()[2] for line in heard[1:]], self.text.split())

        self.assertEqual(self.run_program("stream.py")[-1].split("\r")[-1].strip(), self.text)

        beams = self.run_program("beams.py")
        search = ["decode", self.folder / "tokens.json", self.folder / "logits.npy", "--lm", self.folder / "words.arpa",
                  "--token-floor", str(np.exp(-5))]
        self.assertEqual(beams[0], command(*search).strip())
        self.assertEqual(beams[1], command(*search, "--hot-words", self.folder / "hot.txt").strip())
        self.assertEqual(len(beams), 5)
        self.assertTrue(beams[2].split(" ", 1)[1].startswith(beams[0]))

        searched = self.run_program("search.py")
        self.assertEqual(searched[-1], self.text)
        self.assertTrue(searched[1].startswith(f"['{searched[0]}', ") and len(searched) == 4)

        aligned = self.run_program("spans.py")
        self.assertEqual([line.split()[0] for line in aligned[:4]], list("abcd"))
        self.assertEqual([line.split()[-1] for line in aligned[4:]], ["ab", "cd"])

        trained = self.run_program("train.py")
        steps, weights = trained[-1].split()
        self.assertTrue(int(steps) > 0 and trained[0].startswith(f"{steps}: "))
        self.assertEqual(int(weights), rondo.Recognizer(model()).info.weights)

        loss, text = self.run_program("batches.py")[0].split()
        self.assertLess(float(loss), 1)
        self.assertEqual(text, "abc")

        if importlib.util.find_spec("torch"):
            ours, theirs = self.run_program("torch_loss.py")[0].split()
            self.assertAlmostEqual(float(ours), float(theirs), places=3)
        else:
            print("SKIP: docs/python.md: torch_loss.py: there is no torch here")
            self.programs.pop("torch_loss.py")
        self.assertEqual(list(self.programs), [])


if __name__ == "__main__":
    unittest.main()
