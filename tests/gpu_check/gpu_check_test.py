"""tools/gpu_check against a made-up checkop, since the machine that runs this may have no GPU."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv.pop(1))

CHECKOP = """#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
runs = here / "runs"
if "--devices" in sys.argv:
    print(json.dumps({"kind": "cpu", "available": True, "detail": "cpu"}))
    print(json.dumps({"kind": "cuda", "available": GPU, "detail": "Made-up H1 (cuda:0)" if GPU else "no driver"}))
elif "--bench" in sys.argv:
    print(json.dumps({"op": "a", "case": "b", "median_us": 1.5}))
else:
    runs.write_text(str(int(runs.read_text()) + 1) if runs.exists() else "1")
    digest = runs.read_text() if MOVES else "same"
    print(json.dumps({"op": "a", "case": "b", "status": STATUS, "detail": "", "digest": digest}))
    sys.exit(STATUS != "passed")
"""


class GpuCheck(unittest.TestCase):
    def run_tool(self, gpu=True, status="passed", moves=False, arguments=()):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            script = build / "checkop"
            script.write_text(CHECKOP.replace("GPU", str(gpu)).replace("STATUS", repr(status))
                              .replace("MOVES", str(moves)))
            script.chmod(0o755)
            p = subprocess.run([sys.executable, TOOL, "--build", build, "--out", build / "out",
                                "--sections", "checkop_twice,bench", *arguments],
                               capture_output=True, text=True, check=False)
            results = [json.loads(f.read_text()) for f in (build / "out").glob("*.json")]
            names = [f.name for f in (build / "out").glob("*")]
            return p, results, names

    def test_without_a_gpu_it_is_skipped_with_the_reason(self):
        p, results, _ = self.run_tool(gpu=False)
        self.assertEqual(p.returncode, 77)
        self.assertIn("no GPU: no driver", p.stdout)
        self.assertEqual(results, [])

    def test_a_good_run_writes_one_result_named_after_date_gpu_and_commit(self):
        p, results, names = self.run_tool()
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^\d{4}-\d\d-\d\d-made-up-h1-\w+(-dirty)?\.json$")
        sections = results[0]["sections"]
        self.assertEqual(list(sections), ["checkop_twice", "bench"])
        self.assertEqual(sections["checkop_twice"]["ran"], 1)
        self.assertEqual(sections["bench"]["rows"][0]["median_us"], 1.5)

    def test_a_failing_case_fails_the_run_and_is_kept(self):
        p, results, _ = self.run_tool(status="failed")
        self.assertEqual(p.returncode, 1)
        self.assertEqual(results[0]["sections"]["checkop_twice"]["status"], "failed")
        self.assertEqual(results[0]["sections"]["checkop_twice"]["failed"][0]["op"], "a")

    def test_results_that_differ_between_two_runs_fail(self):
        p, results, _ = self.run_tool(moves=True)
        self.assertEqual(p.returncode, 1)
        self.assertEqual(len(results[0]["sections"]["checkop_twice"]["not_reproduced"]), 1)

    def test_a_run_in_which_every_case_is_skipped_is_no_pass(self):
        p, _, _ = self.run_tool(status="skipped")
        self.assertEqual(p.returncode, 1)

    def test_an_unknown_section_is_wrong_usage(self):
        p, _, _ = self.run_tool(arguments=["--sections", "nonsense"])
        self.assertEqual(p.returncode, 2)
        self.assertIn("nonsense", p.stderr)


if __name__ == "__main__":
    unittest.main()
