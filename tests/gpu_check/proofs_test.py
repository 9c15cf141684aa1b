"""tools/gpu/proofs.py with made-up results."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from gpu_check_support import TOOL

# Of tools/gpu.
import places
import proofs


class Proofs(unittest.TestCase):
    """A kernel is chosen by default on GPUs as long as a result stands behind its present source."""

    KERNEL, SOURCE = "lstm_forward/grid_cluster", "kernels/lstm/gpu/lstm_grid_cluster_forward.cu"

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        shutil.copytree(places.ROOT / "kernels" / "lstm", self.root / "kernels" / "lstm")
        (self.root / "kernels" / "simt").mkdir()
        for name in ("simt.h", "vocabulary_cuda.h", "divide_fast.h"):
            shutil.copy(places.ROOT / "kernels" / "simt" / name, self.root / "kernels" / "simt" / name)
        (self.root / proofs.RESULTS).mkdir(parents=True)
        self.set_header({kernel: None for kernel in proofs.KERNELS})

    def set_header(self, of):
        (self.root / proofs.HEADER).write_text(proofs.header(self.root, of))

    def commit_result(self, cases=(("passed", "x"), ("passed", "x")), full_size=("passed",), complete=True,
                      **more):
        """A result of two runs, whose cases of the kernel are (status, digest), and of one at full size."""
        op, variant = self.KERNEL.split("/")
        rows = [{"op": op, "variant": variant, "case": "c", "status": s, "digest": d} for s, d in cases]
        moved = [a for a, b in zip(rows[::2], rows[1::2]) if a != b]
        result = {"gpu": "Made-up", "sources": proofs.fingerprints(self.root),
                  "sections": {
                      "lstm_twice": {"complete": complete, "variants": proofs.outcomes(rows, moved)},
                      "full_size": {"complete": True, "variants": proofs.outcomes(
                          [{"op": op, "variant": variant, "status": s} for s in full_size], [])}}} | more
        (self.root / proofs.RESULTS / "2026-01-01-made-up.json").write_text(json.dumps(result))

    def proven(self):
        return [kernel for kernel, proof in proofs.proven(self.root).items() if proof]

    def edit(self, path, old, new):
        text = (self.root / path).read_text()
        self.assertIn(old, text)
        (self.root / path).write_text(text.replace(old, new))

    def check(self, *arguments):
        p = subprocess.run([sys.executable, TOOL.parent / "gpu" / "proofs.py", "--root", self.root, *arguments],
                           capture_output=True, text=True, check=False)
        return p.returncode

    def test_without_a_result_nothing_is_proven(self):
        self.assertEqual(self.proven(), [])

    def test_a_result_proves_the_kernel_it_ran_and_no_other(self):
        self.commit_result()
        self.assertEqual(self.proven(), [self.KERNEL])

    def test_failed_moving_skipped_and_unknown_runs_prove_nothing(self):
        for cases in ((("passed", "x"), ("passed", "y")), (("passed", "x"), ("failed", "x")),
                      (("skipped", ""), ("skipped", "")), ()):
            self.commit_result(cases)
            self.assertEqual(self.proven(), [], cases)
        for more in ({"sources": {}}, {"complete": False}, {"full_size": ()},
                     {"full_size": ("passed", "failed")}):
            self.commit_result(**more)
            self.assertEqual(self.proven(), [], more)

    def test_a_changed_source_header_or_wrapper_voids_the_result_and_a_comment_does_not(self):
        for path, old in ((self.SOURCE, "compute_cells("), ("kernels/lstm/gpu/lstm_gpu_device.h", "expf"),
                          ("kernels/simt/vocabulary_cuda.h", "__device__ inline void cp_async_commit")):
            with self.subTest(path):
                self.commit_result()
                self.edit(path, old, "// a remark\n" + old)
                self.assertEqual(self.proven(), [self.KERNEL])
                self.edit(path, old, old + "x")
                self.assertEqual(self.proven(), [])
                self.edit(path, old + "x", old)

    def test_the_header_must_say_what_the_results_say(self):
        self.assertEqual(self.check(), 0)
        self.commit_result()
        self.assertEqual(self.check(), 1)  # proven, and not yet chosen
        self.assertEqual(self.check("--update"), 0)
        self.assertEqual(self.check(), 0)
        self.assertIn(f"{proofs.constant(self.KERNEL)} = true;", (self.root / proofs.HEADER).read_text())
        self.edit(self.SOURCE, "compute_cells(", "computex_cells(")
        self.assertEqual(self.check(), 1)  # chosen, and no longer proven

    def test_the_header_of_this_tree_says_what_its_results_say(self):
        p = subprocess.run([sys.executable, TOOL.parent / "gpu" / "proofs.py"], capture_output=True,
                           text=True, check=False)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)


if __name__ == "__main__":
    unittest.main()
