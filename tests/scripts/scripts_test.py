"""scripts_test.py SOURCE_ROOT: tools/quickstart and tools/test, with stand-ins for all that they call.

A copy of the scripts runs in a folder of its own. The stand-ins write down how they are called, and do as little as
the scripts need to go on; that the real programs do what is asked of them is seen by people and in CI.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))

CALLED = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
STAND_INS = {
    "dpkg-query": 'echo "install ok installed"',
    "meson": """case "$1" in
  setup) mkdir -p "$2"; touch "$2/build.ninja"; printf "$LEFT_OUT" > "$2/left_out.txt" ;;
  introspect) [ -z "$MESON_FAILS" ] || exit 1
    python3 -c 'import json, os
files = {"a": "tests/a_test", "slow": "tests/slow_test", "rondo": "tools/rondo", "started": "tests/started_by_a_test"}
built = {name: os.path.abspath("build/" + file) for name, file in files.items()}
tests = [("fast", [built["a"], "build/../tools/rondo"], ["started"]), ("full", [built["slow"]], [])]
print(json.dumps({"targets": [{"id": name, "filename": [file]} for name, file in built.items()],
                  "tests": [{"suite": ["rondo:" + suite], "cmd": cmd, "depends": depends}
                            for suite, cmd, depends in tests]}))' ;;
  test) printf ' 1/1 a OK 0.1s\\nOk:                 3\\nExpected Fail:      0\\nFail:               0\\nSkipped:            1\\nTimeout:            0\\n' ;;
esac""",
    "ninja": """echo "[1/7] Compiling C++ object a.o"
if [ -n "$NINJA_FAILS" ]; then echo "a.cc:3: error: no such thing"; exit 1; fi
sleep ${NINJA_TAKES:-0}
mkdir -p "$2/tools" && cp stand-ins/rondo "$2/tools/rondo"
echo "[7/7] Linking target tools/rondo" """,
    "rondo": """case "$1" in
  prepare) mkdir -p "$3/wav"; touch "$3/wav/test_0.wav" "$3/wav/test_1.wav" ;;
  train) python3 -c 'import time
while time.process_time() < 1: pass' ;;
  eval) case "$*" in
      *--lm*) printf 'WER 0.10%% CER 0.06%% on 400 utterances\\n' ;;
      *) printf 'WER 2.15%% CER 0.55%% on 400 utterances\\n' ;;
    esac
    printf 'seen voices              WER 1.00%%  CER 0.50%%     20 utterances\\n' ;;
esac""",
}


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        (self.top / "tools").mkdir()
        for name in ("quickstart", "test", "common.sh"):
            shutil.copy(ROOT / "tools" / name, self.top / "tools")
        (self.top / "stand-ins").mkdir()
        for name, does in STAND_INS.items():
            file = self.top / "stand-ins" / name
            file.write_text("#!/usr/bin/env bash\n" + CALLED + does + "\n")
            file.chmod(0o755)

    def run_script(self, *words, code=0, **environment):
        done = subprocess.run([self.top / "tools" / words[0], *words[1:]], cwd="/", timeout=60, capture_output=True,
                              text=True, env={**os.environ, "CALLS": str(self.top / "calls"), "NINJA_FAILS": "", "MESON_FAILS": "",
                                              "LEFT_OUT": "\\n", "PATH": f"{self.top}/stand-ins:{os.environ['PATH']}", **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.calls = (self.top / "calls").read_text().splitlines()
        return done.stdout, done.stderr

    def test_a_quickstart(self):
        out, err = self.run_script("quickstart")
        ours = [c for c in self.calls if c.split()[0] in ("rondo", "ninja")]
        self.assertEqual(ours, ["ninja -C build-quickstart tools/rondo",
                                "rondo prepare speech-demo quickstart-data/corpus",
                                "rondo train tools/recipes/speech-demo.toml data=quickstart-data/corpus "
                                "training.checkpoint_dir=quickstart-data/model",
                                "rondo eval quickstart-data/model quickstart-data/corpus/test.jsonl",
                                "rondo lm train quickstart-data/corpus/train.jsonl --order 3 --discount-fallback "
                                "--out quickstart-data/3gram.lm",
                                "rondo eval quickstart-data/model quickstart-data/corpus/test.jsonl "
                                "--lm quickstart-data/3gram.lm",
                                "rondo transcribe quickstart-data/model quickstart-data/corpus/wav/test_0.wav "
                                "--lm quickstart-data/3gram.lm"])
        *_, times, processors, last = out.splitlines()
        self.assertRegex(last, r"^quickstart: WER 2.15% CER 0.55% on 400 utterances, "
                               r"with a language model WER 0.10% CER 0.06%, \d+ s$")
        parts = re.fullmatch(r"packages (\d+) s, building (\d+) s, corpus (\d+) s, training (\d+) s, evaluation (\d+) s", times)
        self.assertTrue(parts, times)
        # Whole seconds, each of which may begin in one part and end in the next.
        self.assertLessEqual(abs(sum(map(int, parts.groups())) - int(re.search(r"(\d+) s$", last)[1])), 1, out)
        used = re.fullmatch(r"processor time: (\d+) s, and (\d+) s in the system", processors)
        # What the stand-in that trains takes, and not much else is done.
        self.assertTrue(used and 1 <= int(used[1]) + int(used[2]) < 60, processors)

    def test_a_build_shows_how_far_it_is(self):
        common = (self.top / "tools" / "common.sh").read_text()
        (self.top / "tools" / "common.sh").write_text(common.replace("pause=30", "pause=0.1"))
        _, err = self.run_script("quickstart", NINJA_TAKES="1")
        self.assertIn("\n[1/7]\n", err)

    def test_a_build_that_fails_says_why(self):
        _, err = self.run_script("quickstart", code=1, NINJA_FAILS="1")
        self.assertTrue(err.endswith("a.cc:3: error: no such thing\nquickstart: building build-quickstart failed\n"), err)
        self.assertFalse(any(c.startswith("rondo") for c in self.calls), self.calls)

    def says_without(self, driver, *words, **environment):
        """The lines about what is left out; a stand-in for nvidia-smi does as `driver` says."""
        file = self.top / "stand-ins" / "nvidia-smi"
        file.write_text("#!/usr/bin/env bash\n" + driver + "\n")
        file.chmod(0o755)
        _, err = self.run_script(*words, **environment)
        self.configured = [c for c in self.calls if c.startswith("meson setup")][-1]
        return re.findall(r"without [^\x1b\n]*", err)

    def test_a_gpu_that_is_too_old(self):
        self.assertEqual(self.says_without("echo 7.5; echo 6.1", "quickstart"),
                         ["without CUDA: the GPU has compute capability 7.5, 8.0 or newer is wanted"])
        self.assertIn("-Dcuda=disabled", self.configured)

    def test_a_driver_that_names_no_gpu(self):
        for said in ("Failed to initialize NVML: Driver/library version mismatch", "No devices were found", "[N/A]",
                     'Field "compute_cap" is not a valid field to query.'):
            self.assertEqual(self.says_without(f"echo '{said}'; exit 9", "quickstart"),
                             [f"without CUDA: nvidia-smi names no GPU ({said})"])
            self.assertIn("-Dcuda=disabled", self.configured)

    def test_gpus_of_several_kinds(self):
        self.assertEqual(self.says_without("printf '12.0\n7.5\n9.0\n9.0\n8.6\n'", "quickstart"), [])
        self.assertIn("-Dcuda=auto -Dgpu_arch=86,90a,120", self.configured)

    def test_what_is_left_out_is_said(self):
        self.assertEqual(self.says_without("echo 9.0", "quickstart", LEFT_OUT="CUDA: no nvcc\nMPI: too old\n"),
                         ["without CUDA: no nvcc", "without MPI: too old"])
        self.assertEqual(self.says_without("echo 9.0", "test", "--fast", LEFT_OUT="Gloo: no libgloo-dev\n"),
                         ["without Gloo: no libgloo-dev"])

    def test_fast_tests_build_what_they_need(self):
        out, _ = self.run_script("test", "--fast")
        self.assertIn("ninja -C build tests/a_test tests/started_by_a_test tools/rondo", self.calls)
        self.assertEqual([c for c in self.calls if c.startswith("meson test")],
                         ["meson test -C build --no-rebuild --print-errorlogs --suite fast"])
        self.assertTrue(out.endswith("\n3 passed, 0 failed, 1 skipped\n"), out)
        self.run_script("test", "--fast", code=1, MESON_FAILS="1")
        self.assertEqual(self.calls[-1], "meson introspect --tests --targets build")
        self.run_script("test")
        self.assertIn("ninja -C build all tests/a_test tests/slow_test tests/started_by_a_test tools/rondo", self.calls)


unittest.main()
