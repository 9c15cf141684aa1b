"""tools/gpu_check against made-up programs, since the machine that runs this may have no GPU."""

import contextlib
import csv
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

TOOL = pathlib.Path(sys.argv.pop(1))
REAL_CHECKOP = sys.argv.pop(1)
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOL.parent / "gpu"))
import figures  # noqa: E402
import forecast  # noqa: E402
import places  # noqa: E402
import proofs  # noqa: E402
import sections  # noqa: E402
import training_task  # noqa: E402
import watch  # noqa: E402

# Three cases. STATUS is the second's; TROUBLE is what the second does to its process instead.
CHECKOP = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
runs = here / "runs"
if "--devices" in sys.argv:
    print(json.dumps({"kind": "cpu", "available": True, "detail": "cpu"}))
    print(json.dumps({"kind": "cuda", "available": GPU, "detail": "Made-up H1 (cuda:0)" if GPU else "no driver"}))
elif "--sources" in sys.argv:
    print(json.dumps(SOURCES))
elif "--list" in sys.argv and "--json" in sys.argv:
    for op, case, variant in (("a", "b/1", "fast"), ("a", "b/2", "fast"), ("c", "d", "slow")):
        print(json.dumps({"op": op, "case": case, "variant": variant, "timed": True, "host_bytes": 100}))
elif "--list" in sys.argv:
    print("a/b/1 cuda:fast\\na/b/2 cuda:fast\\nc/d cuda:slow")
elif "--bench" in sys.argv:
    for variant, us in (("fast", 1.5), ("slow", 4.0), ("cudnn_standard", 6.0), ("cudnn_persist", 3.0)):
        print(json.dumps({"op": "a", "case": "b", "variant": variant, "median_us": 2 * us, "stream_us": us}))
else:
    after = sys.argv[sys.argv.index("--after") + 1] if "--after" in sys.argv else None
    if after is None:
        runs.write_text(str(int(runs.read_text()) + 1) if runs.exists() else "1")
    moving = runs.read_text() if MOVES else "same"
    names = ["a/b/1 cuda:fast", "a/b/2 cuda:fast", "c/d cuda:slow"]
    for name in names[names.index(after) + 1 if after else 0:]:
        print("checkop: running", name, file=sys.stderr, flush=True)
        second = name == names[1]
        if second and TROUBLE == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if second and TROUBLE == "hangs":
            time.sleep(1000)
        label, variant = name.split(" cuda:")
        status = STATUS if second or STATUS == "skipped" else "passed"
        print(json.dumps({"op": label[:1], "case": label[2:], "variant": variant,
                          "status": "failed" if second and TROUBLE == "loses" else status, "detail": "",
                          "digest": moving}), flush=True)
        if second and TROUBLE == "loses":
            print("checkop: the GPU was lost", file=sys.stderr)
            sys.exit(3)
    sys.exit(STATUS == "failed")
"""

# 400 small cases of 10 ms of a processor each, and 16 large ones, 20 ms for a MB; keeps the names of what it ran.
MANY_CASES = """#!/usr/bin/env python3
import json, pathlib, resource, sys
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
cases = {f"a/small{i:03}": (1000, 0.01) for i in range(400)}
cases |= {f"c/large{i:02}": ((4 + i) << 20, 0.02 * (4 + i)) for i in range(16)}
ran = []
filters = [a for a in sys.argv[1:] if "/" in a]
for name, (size, seconds) in cases.items():
    if filters and not any(f in name for f in filters):
        continue
    op, case = name.split("/")
    for variant in ("fast", "slow"):
        if "--list" not in sys.argv:
            end = used() + seconds / 2
            while used() < end:
                sum(range(2000))
            ran.append(name)
        print(json.dumps({"op": op, "case": case, "variant": variant, "timed": True, "host_bytes": size,
                          "status": "passed"}))
with open(pathlib.Path(__file__).parent / "ran", "a") as file:
    print(*ran, file=file)
"""

# Trains for as long as it is told, and recognises as well as it is told.
RONDO = """#!/usr/bin/env python3
import json, pathlib, sys, time
if sys.argv[1] == "train":
    time.sleep(SLEEP)
    family = sys.argv[sys.argv.index("--kernels") + 1] if "--kernels" in sys.argv else ""
    beside = "training.weights_beside=true" in sys.argv
    fps = FPS * (2 if "cluster" in family else 1) * (5 if beside else 1)
    if "fused" in family:
        print("warning: --kernels lstm_forward=fused took none of the calls; it is for ...", file=sys.stderr)
    if "grid" in family:
        sys.exit("the GPU was lost")
    run = next(a.split("=")[1] for a in sys.argv if a.startswith("training.checkpoint_dir="))
    pathlib.Path(run).mkdir(parents=True)
    with open(run + "/log.jsonl", "w") as log:
        log.write(json.dumps({"event": "start"}) + "\\n")
        for step in range(10):
            log.write(json.dumps({"event": "step", "loss": LOSS if beside and step == 9 else 1.0,
                                  "frames_per_second": 100.0 if step < 5 else fps}) + "\\n")
elif sys.argv[1] == "eval":
    print(json.dumps({"all": {"wer": WER}, "utterances": 300}))
"""

# Checks its first sum well, its second as well as it is told.
NCCL_CHECK = """#!/usr/bin/env python3
import json, sys
if STATUS == "skipped":
    print("no NCCL", file=sys.stderr)
    sys.exit(77)
print(json.dumps({"ranks": 1, "sum": "ring f32", "status": "passed"}))
print(json.dumps({"ranks": 2, "sum": "ring f32", "status": STATUS}))
sys.exit(STATUS != "passed")
"""


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def given_time(seconds, attempt, said):
    """attempt(seconds) of a program that is stopped after so long; with ten times as long where a busy machine
    has kept it from saying a word."""
    ended = attempt(seconds)
    return ended if said(ended) else attempt(10 * seconds)


def runs(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Proofs(unittest.TestCase):
    """A kernel is chosen by default on GPUs as long as a result stands behind its present source."""

    KERNEL, SOURCE = "lstm_forward/grid_cluster", "kernels/lstm/persistent/lstm_grid_cluster_forward.cu"

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


class GpuCheck(unittest.TestCase):
    def run_tool(self, gpu=True, status="passed", moves=False, wer=0.01, sleep=0, nccl="passed", arguments=(),
                 which="others_twice", trouble="", sources=None, command="prove", loss_beside=1.0):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            write_program(build / "checkop", CHECKOP.replace("GPU", str(gpu))
                          .replace("STATUS", repr(status)).replace("MOVES", str(moves))
                          .replace("TROUBLE", repr(trouble))
                          .replace("SOURCES", repr(proofs.fingerprints(places.ROOT) if sources is None else sources)))
            task = training_task.TASKS["bilstm"]
            frames = task.sequences * task.frames
            write_program(build / "rondo", RONDO.replace("SLEEP", str(sleep))
                          .replace("WER", repr(wer)).replace("FPS", repr(frames / 0.025))
                          .replace("LOSS", repr(loss_beside)))
            write_program(build / "nccl_check", NCCL_CHECK.replace("STATUS", repr(nccl)))
            (build / "shared" / "data" / "fsdd").mkdir(parents=True)
            p = subprocess.run([sys.executable, TOOL, command, "--build", build, "--out", build / "out",
                                "--sections", which, *arguments], capture_output=True, text=True,
                               check=False, env={"PATH": "/usr/bin:/bin",
                                                 "RONDO_SHARED": str(build / "shared")})
            results = [json.loads(f.read_text()) for f in (build / "out").glob("*.json")]
            names = [f.name for f in (build / "out").glob("*")]
            return p, results, names

    def test_a_pack_runs_elsewhere_and_says_what_it_lacks(self):
        with tempfile.TemporaryDirectory() as directory:
            build, pack = pathlib.Path(directory) / "build", pathlib.Path(directory) / "pack"
            build.mkdir()
            for name in ("checkop", "simt_test", "rondo"):  # no script: what they load is copied along
                shutil.copy(REAL_CHECKOP, build / name)
            env = {"PATH": "/usr/bin:/bin", "RONDO_SHARED": str(build)}
            p = subprocess.run([sys.executable, TOOL, "--pack", pack, "--build", build], check=False,
                               capture_output=True, text=True, env=env)
            self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
            self.assertIn("without nccl_check (not built), recordings (not found", p.stdout)
            shutil.rmtree(build)
            # A machine with another driver or none: it starts, with the libraries it brought.
            p = subprocess.run([sys.executable, pack / "gpu_check", "prove", "--minutes", "0.001"], check=False,
                               capture_output=True, text=True, cwd="/", env={"PATH": "/usr/bin:/bin"})
            self.assertIn(p.returncode, (0, 1, 77), p.stdout + p.stderr)
            self.assertIn("no GPU: " if p.returncode == 77 else "gpu_check: wrote", p.stdout)
            (build / "checkop").parent.mkdir()
            p = subprocess.run([sys.executable, TOOL, "--pack", pack, "--build", build], check=False,
                               capture_output=True, text=True, env=env)
            self.assertEqual(p.returncode, 2)
            self.assertIn("checkop is not built", p.stderr)

    def test_a_pack_of_one_file_holds_its_folder_and_another_the_recordings(self):
        def pack_folder(target, build):
            for name in ("lib", "recordings"):
                (target / name).mkdir(parents=True)
                (target / name / "a").touch()
            return ["lib"], [str(build)]
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(places, "pack_folder", pack_folder):
            file = pathlib.Path(directory) / "one.tar.xz"
            packed, missing = places.pack(file, 5)
            self.assertEqual(missing, ["5"])
            self.assertEqual([p.partition(" (")[0] for p in packed], [str(file), directory + "/one-recordings.tar.xz"])
            for name, member in (("one", "lib"), ("one-recordings", "recordings")):
                with tarfile.open(f"{directory}/{name}.tar.xz") as archive:
                    self.assertEqual(archive.getnames(), [f"one/{member}", f"one/{member}/a"])
            with mock.patch.object(places, "MOST_PACKED", 10), self.assertRaisesRegex(ValueError, "-Dgpu_arch=90a"):
                places.pack(file, 5)

    def test_a_forecast_says_what_falls_off_the_end(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "checkop_stand_in"
            write_program(program, CHECKOP.replace("MOVES", "False").replace("STATUS", "'passed'")
                          .replace("TROUBLE", "''"))
            lines = list(forecast.lines(sections.Check(program), "prove", 9))
            self.assertIn("cut short: nothing", lines[-1])
            with mock.patch.dict(forecast.ASSUMED, {"families": 500}):
                lines = list(forecast.lines(sections.Check(program), "prove", 9))
            self.assertRegex(lines[-1], r"cut short: families by \d+ s")
            self.assertTrue(lines[4].startswith("families"), lines)
            with self.assertRaisesRegex(RuntimeError, "exit status 3"):
                write_program(program, "#!/bin/sh\nexit 3\n")
                list(forecast.lines(sections.Check(program), "prove", 9))

    def test_a_forecast_alone_needs_the_stand_in_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as directory:
            def forecast_there():
                p = subprocess.run([sys.executable, TOOL, "measure", "--forecast", "--build", directory],
                                   capture_output=True, text=True, check=False)
                return p.returncode, p.stdout
            status, out = forecast_there()
            self.assertEqual(status, 2)
            self.assertIn("checkop_stand_in is not built", out)
            program = pathlib.Path(directory) / "checkop_stand_in"
            write_program(program, CHECKOP.replace("MOVES", "False").replace("STATUS", "'passed'")
                          .replace("TROUBLE", "''")
                          .replace("elif", 'elif "RONDO_STAND_IN_STILL" not in os.environ:\n    sys.exit(4)\nelif', 1))
            status, out = forecast_there()
            self.assertEqual(status, 0, out)
            self.assertIn("measure: ", out.splitlines()[-1])
            self.assertEqual(sorted(p.name for p in pathlib.Path(directory).iterdir()), ["checkop_stand_in"])

    def test_a_forecast_runs_few_cases_and_scales_them(self):
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.multiple(forecast, FEW=80, MOST_BYTES=64 << 20):
            program = pathlib.Path(directory) / "checkop_stand_in"
            write_program(program, MANY_CASES)
            seconds, variants = forecast.host(sections.Check(program), [], ["--op", "a,c"])
            ran = set((program.parent / "ran").read_text().split())
            self.assertAlmostEqual(variants, 2 * 416, delta=20)
            # 4 s of the small, 3.7 of the large; a little more or less, as processes begin slowly.
            self.assertGreater(seconds, 6)
            self.assertLess(seconds, 10)
            self.assertEqual(len([n for n in ran if "small" in n]), 80)
            self.assertLess(len(ran), 90)
            # A pass that times cases leaves out the others.
            write_program(program, MANY_CASES.replace('"timed": True', '"timed": op == "c"'))
            self.assertAlmostEqual(forecast.host(sections.Check(program), [], ["--bench"])[1], 32, delta=1)

    def test_without_a_gpu_it_is_skipped_with_the_reason(self):
        p, results, _ = self.run_tool(gpu=False)
        self.assertEqual(p.returncode, 77)
        self.assertIn("no GPU: no driver", p.stdout)
        self.assertEqual(results, [])

    def test_a_good_run_writes_one_result_named_after_date_gpu_and_commit(self):
        p, results, names = self.run_tool()
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^\d{4}-\d\d-\d\d-made-up-h1-\w+(-dirty)?-prove\.json$")
        found = results[0]["sections"]
        self.assertEqual(list(found), ["others_twice"])
        self.assertEqual(found["others_twice"]["ran"], 3)

    def test_the_second_command_measures(self):
        p, results, names = self.run_tool(command="measure", which="bench")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertRegex(names[0], r"-measure\.json$")
        self.assertEqual(results[0]["sections"]["bench"]["rows"][0]["median_us"], 3)
        p, _, _ = self.run_tool(command="measure", which="lstm_twice")
        self.assertEqual(p.returncode, 2)
        self.assertIn("measure has no section 'lstm_twice'", p.stderr)

    def test_each_family_is_timed_and_one_that_fails_or_declines_has_no_time(self):
        p, results, _ = self.run_tool(which="families")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        found = results[0]["sections"]["families"]
        self.assertEqual(found["fastest"], {
            "bilstm bf16": "bilstm bf16 cluster", "bilstm f32": "bilstm f32 portable",
            "brain_to_text bf16": "brain_to_text bf16 portable", "algoperf f32": "algoperf f32 cluster"})
        self.assertAlmostEqual(found["ours"]["bilstm bf16 cluster"]["median_ms"], 12.5)
        self.assertAlmostEqual(found["ours"]["bilstm f32 portable"]["median_ms"], 25.0)
        self.assertAlmostEqual(found["ours"]["bilstm bf16 portable beside"]["median_ms"], 5.0)
        self.assertIn("the GPU was lost", found["ours"]["bilstm bf16 grid"]["detail"])
        self.assertIn("took none", found["ours"]["algoperf f32 fused"]["detail"])
        self.assertEqual(found["moved"], [])

    def test_weights_on_a_second_stream_must_not_move_the_losses(self):
        p, results, _ = self.run_tool(which="families", loss_beside=1.0000001)
        self.assertEqual(p.returncode, 1)
        self.assertEqual(results[0]["sections"]["families"]["moved"],
                         ["bilstm bf16 cluster beside", "bilstm bf16 portable beside"])

    def test_a_result_says_which_sources_passed(self):
        result = self.run_tool()[1][0]
        self.assertEqual(set(result["sources"]), set(proofs.KERNELS))
        self.assertEqual(result["sources"], proofs.fingerprints(places.ROOT))
        self.assertEqual(result["sections"]["others_twice"]["variants"]["a/fast"],
                         {"passed": 4, "failed": 0, "moved": 0})
        moving = self.run_tool(moves=True)[1][0]
        self.assertEqual(moving["sections"]["others_twice"]["variants"]["a/fast"]["moved"], 2)

    def test_programs_of_other_sources_are_refused(self):
        for sources in ({}, {**proofs.fingerprints(places.ROOT), "lstm_forward/grid": "0" * 64}):
            p, results, _ = self.run_tool(sources=sources)
            self.assertEqual(p.returncode, 2, p.stdout + p.stderr)
            self.assertIn("was compiled from other sources of lstm_", p.stderr)
            self.assertEqual(results, [])

    def test_the_fastest_of_ours_stands_beside_the_fastest_of_each_peer(self):
        _, results, _ = self.run_tool(command="measure", which="bench")
        self.assertEqual(results[0]["sections"]["bench"]["beside_peers"],
                         [{"op": "a", "case": "b", "ours": "fast", "ours_us": 1.5,
                           "peer": "cudnn_persist", "peer_us": 3.0, "ratio": 2.0}])

    def test_a_failing_case_fails_the_run_and_is_kept(self):
        p, results, _ = self.run_tool(status="failed")
        self.assertEqual(p.returncode, 1)
        self.assertEqual(results[0]["sections"]["others_twice"]["status"], "failed")
        self.assertEqual(results[0]["sections"]["others_twice"]["failed"][0]["op"], "a")

    def test_results_that_differ_between_two_runs_fail(self):
        p, results, _ = self.run_tool(moves=True)
        self.assertEqual(p.returncode, 1)
        self.assertEqual(len(results[0]["sections"]["others_twice"]["not_reproduced"]), 3)

    def test_a_run_in_which_every_case_is_skipped_is_no_pass(self):
        p, _, _ = self.run_tool(status="skipped")
        self.assertEqual(p.returncode, 1)

    def in_trouble(self, trouble, call):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "checkop"
            write_program(program, CHECKOP.replace("MOVES", "False").replace("STATUS", "'passed'")
                          .replace("TROUBLE", repr(trouble)))
            return call(program)

    def test_a_case_that_crashes_hangs_or_loses_the_gpu_fails_alone(self):
        for trouble in ("crashes", "loses", "hangs"):
            # On a busy machine those that do not hang are silent for a while as well.
            done = given_time(4 if trouble == "hangs" else 60, lambda silence: self.in_trouble(
                trouble, lambda program: watch.checkop(program, [], None, time.monotonic() + 120, silence)),
                              lambda done: done.complete and len(done.rows) == 3)
            self.assertTrue(done.complete, trouble)  # the third case had its turn
            self.assertEqual([l["case"] for l in done.losses], ["a/b/2 cuda:fast"])
            self.assertEqual([(r["op"], r["case"], r["variant"], r["status"]) for r in done.rows],
                             [("a", "b/1", "fast", "passed"), ("a", "b/2", "fast", "failed"),
                              ("c", "d", "slow", "passed")])

    def test_a_lost_case_counts_against_its_kernel_and_no_other(self):
        outcome = self.in_trouble("crashes", lambda program: sections.Check(program).section(
            "others_twice", time.monotonic() + 60))
        self.assertEqual((outcome["status"], outcome["complete"], len(outcome["losses"])), ("failed", True, 2))
        self.assertEqual(outcome["variants"]["c/slow"], {"passed": 2, "failed": 0, "moved": 0})
        self.assertEqual(outcome["variants"]["a/fast"], {"passed": 2, "failed": 2, "moved": 0})

    def test_a_pass_cut_short_keeps_its_rows_and_is_not_complete(self):
        done = given_time(4, lambda seconds: self.in_trouble("hangs", lambda program: watch.checkop(
            program, [], None, time.monotonic() + seconds, 120)), lambda done: done.last.endswith("2 cuda:fast"))
        self.assertEqual([r["case"] for r in done.rows], ["b/1"])
        self.assertEqual((done.complete, done.last), (False, "a/b/2 cuda:fast"))

    def test_what_a_killed_program_started_ends_too(self):
        ended = given_time(2, lambda seconds: watch.run(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], None,
                                                        time.monotonic() + seconds), lambda ended: ended.out)
        self.assertEqual((ended.status, ended.why), (None, "out of time"))
        end = time.monotonic() + 60
        while runs(int(ended.out)):
            self.assertLess(time.monotonic(), end, "it still runs")
            time.sleep(0.01)

    def test_a_section_that_breaks_is_told_and_the_others_still_run(self):
        p, results, _ = self.run_tool(which="digits,families", arguments=["--build", "/nonexistent"])
        self.assertEqual(p.returncode, 2)  # no programs at all
        check = sections.Check(pathlib.Path("/nonexistent/checkop"))
        outcome = check.section("others_twice", time.monotonic() + 5)
        self.assertEqual(outcome["status"], "failed")
        self.assertIn("FileNotFoundError", outcome["detail"])

    def test_digits_pass_by_their_word_error_rate(self):
        for wer, status in ((0.01, "passed"), (0.5, "failed"), (float("nan"), "failed")):
            p, results, _ = self.run_tool(wer=wer if wer == wer else None, which="digits")
            self.assertEqual(results[0]["sections"]["digits"]["status"], status, p.stdout + p.stderr)
            self.assertEqual(p.returncode, status == "failed")

    def test_nccl_passes_when_all_its_sums_do(self):
        for nccl, exits in (("passed", 0), ("failed", 1), ("skipped", 0)):
            p, results, _ = self.run_tool(nccl=nccl, command="measure", which="nccl")
            self.assertEqual(p.returncode, exits)
            self.assertEqual(results[0]["sections"]["nccl"]["status"], nccl)
            if nccl == "passed":
                self.assertEqual(results[0]["sections"]["nccl"]["ranks"], 2)

    def test_a_section_out_of_time_fails_and_says_so(self):
        p, results, _ = self.run_tool(sleep=5, which="digits", arguments=["--minutes", "0.03"])
        self.assertEqual(p.returncode, 1)
        self.assertEqual(results[0]["sections"]["digits"]["complete"], False)

    def test_the_training_step_is_timed_from_the_log_after_its_first_steps(self):
        p, results, _ = self.run_tool(command="measure", which="training_step")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        ours = results[0]["sections"]["training_step"]["ours"]
        self.assertAlmostEqual(ours["bf16"]["median_ms"], 25.0)
        self.assertEqual(ours["f32"]["steps"], 5)

    def test_an_unknown_section_is_wrong_usage(self):
        p, _, _ = self.run_tool(arguments=["--sections", "nonsense"])
        self.assertEqual(p.returncode, 2)
        self.assertIn("nonsense", p.stderr)

    def test_minutes_that_are_none_are_wrong_usage(self):
        for minutes in ("-3", "0", "nan", "1e9"):
            p, _, _ = self.run_tool(arguments=["--minutes", minutes])
            self.assertEqual(p.returncode, 2)
            self.assertIn("expected more than 0", p.stderr)

    def test_time_is_the_chosen_sections_and_what_one_leaves_the_next_ones(self):
        loader = importlib.machinery.SourceFileLoader("gpu_check_tool", str(TOOL))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(tool)
        ends = []

        class InNoTime:
            def __init__(self, *_):
                pass

            def section(self, name, end):
                ends.append((name, end))
                return {"status": "passed", "seconds": 0}

        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(sections, "Check", InNoTime), \
                mock.patch.object(sections, "find_device", lambda *_: ({"detail": "Made-up"}, "")), \
                mock.patch.object(places, "find_program", lambda name, build: build / name), \
                mock.patch.object(places, "kernel_sources", lambda *_: {}), \
                mock.patch.object(time, "monotonic", lambda: 1000.0), \
                mock.patch.object(sys, "argv", ["gpu_check", "prove", "--build", directory, "--out", directory + "/out",
                                                "--sections", "others_twice,digits", "--minutes", "0.2"]), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tool.main(), 0)
        # The digits' own share of the 12 s are 5.7 s; the kernels before them took none of theirs.
        self.assertEqual([name for name, _ in ends], ["others_twice", "digits"])
        self.assertAlmostEqual(ends[0][1], 1000 + 12 * 95 / 180)
        self.assertAlmostEqual(ends[1][1], 1012)

    def test_the_sections_of_each_command_together_take_nine_minutes_at_most(self):
        for command, budgets in sections.COMMANDS.items():
            self.assertLessEqual(sum(budgets.values()), 9 * 60, command)
            for section in budgets:
                self.assertTrue(callable(getattr(sections.Check, section)))


class Pieces(unittest.TestCase):
    def list(self, *options):
        p = subprocess.run([REAL_CHECKOP, "--list", "--backend", "sim", *options], capture_output=True,
                           text=True, check=False)
        return p.returncode, p.stdout.splitlines()

    def test_checkop_runs_filters_in_their_order_and_goes_on_after_a_name(self):
        cast, pool = self.list("cast/")[1], self.list("pool/")[1]
        names = self.list("pool/", "cast/", "pool/last", "pool/")[1]
        self.assertEqual(names, pool + cast)
        for at in (0, len(pool), len(names) - 1):
            self.assertEqual(self.list("pool/", "cast/", "--after", names[at]), (0, names[at + 1:]))
        self.assertEqual(self.list("cast/", "--after", pool[0])[0], 2)

    def test_ops_are_named_in_full(self):
        named = self.list("--op", ",".join(sections.CTC_OPS))[1]
        self.assertEqual({n.partition("/")[0] for n in named}, set(sections.CTC_OPS))
        self.assertEqual(self.list("--op", "ctc", "edges/f32")[1], [n for n in self.list("ctc/edges/f32")[1]
                                                                    if n.startswith("ctc/")])
        self.assertEqual(self.list("--op", "ct")[0], 2)

    def test_the_kernels_that_wait_for_a_result_run_twice_before_any_other(self):
        found = {n.partition(" ")[0].partition("/")[0] + "/" + n.rpartition(":")[2]
                 for n in self.list("--op", ",".join(sections.LSTM_OPS + sections.STACK_OPS))[1]}
        self.assertEqual(set(proofs.KERNELS) - found, set())
        order = list(sections.COMMANDS["prove"])
        self.assertLess(max(map(order.index, proofs.SECTIONS)), min(order.index("ctc_twice"), order.index("digits")))

    def test_the_parts_of_checkop_make_a_whole(self):
        whole = self.list("pool/", "cast/")[1]
        parts = [self.list("pool/", "cast/", "--part", f"{i}/3")[1] for i in (1, 2, 3)]
        self.assertEqual(sorted(sum(parts, [])), sorted(whole))
        self.assertTrue(all(parts))
        for wrong in ("0/3", "4/3", "1", "1/", "/3", "1/3x", "1/0", "-1/3", "1/99999999999"):
            self.assertEqual(self.list("--part", wrong)[0], 2, wrong)

    def test_every_benchmark_is_timed(self):
        """By the patterns, which are in the order of priority; those of no pattern would never be."""
        every = self.list("--bench", "lstm_", "ctc", "gemm")[1]
        named = self.list("--bench", *sections.BESIDE_PEERS, *sections.ALONE)[1]
        ops = {name.partition("/")[0] for name in self.list("--bench")[1]}
        self.assertEqual({name.partition("/")[0] for name in named}, ops)
        self.assertEqual({n for n in every if "/bench" in n or "/peers" in n} - set(named), set())

    def test_the_kernels_that_wait_for_a_result_run_at_full_size(self):
        rows = self.list("--against", sections.TRUSTED, *sections.FULL_SIZE)[1]
        found = {f"{r.partition('/')[0]}/{r.rpartition(':')[2]}" for r in rows}
        self.assertEqual(set(proofs.KERNELS) - found, set())

    def test_the_cases_that_are_named_exist(self):
        for pattern in sections.SANITIZED + sections.PROFILED:
            p = subprocess.run([REAL_CHECKOP, pattern, "--bench", "--list", "--backend", "sim"],
                               capture_output=True, text=True, check=True)
            self.assertNotEqual(p.stdout, "", pattern)

    def test_a_small_case_of_every_op_goes_through_the_sanitizer(self):
        cases = [json.loads(row) for row in self.list("--json", *sections.SANITIZED)[1]]
        self.assertEqual({c["op"] for c in cases}, {n.partition("/")[0] for n in self.list()[1]})
        self.assertLess(max(c["host_bytes"] for c in cases), 8 << 20)
        self.assertLess(len({(c["op"], c["case"]) for c in cases}), 3 * len(sections.SANITIZED))

    def test_ncu_rows_are_means_over_a_kernels_launches(self):
        columns = ["ID", "Kernel Name", *figures.METRICS]
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerow(["", "", "nsecond", "%", "%", "register/thread", "%"])
        writer.writerow(["0", "step", "1,000", "10", "20", "40", "50"])
        writer.writerow(["1", "step", "3,000", "30", "20", "40", "50"])
        rows = figures.profile_rows("==PROF== Connected\n" + out.getvalue())
        self.assertEqual(len(rows), 1)
        self.assertEqual((rows[0]["kernel"], rows[0]["launches"]), ("step", 2))
        self.assertEqual(rows[0]["gpu__time_duration.sum"], 2000)
        self.assertEqual(rows[0]["sm__throughput.avg.pct_of_peak_sustained_elapsed"], 20)
        self.assertEqual(figures.profile_rows("==ERROR== nothing"), [])

    def test_a_line_cut_short_is_dropped(self):
        self.assertEqual(sections.json_lines('{"a": 1}\n[2]\nwords\n{"b": '), [{"a": 1}])

    def test_libraries_are_found_in_python_packages_too(self):
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory) / "nvidia" / "cudnn" / "lib"
            folder.mkdir(parents=True)
            (folder / "libcudnn.so.9").touch()
            self.assertEqual(places.find_libraries([folder]), {"libcudnn.so": str(folder / "libcudnn.so.9")})
            self.assertIn(str(folder), places.environment([folder])["LD_LIBRARY_PATH"])

    def test_a_training_task_is_a_corpus_of_equal_sequences(self):
        for name in ("bilstm", "algoperf"):
            task = training_task.TASKS[name]
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                manifest = training_task.write_corpus(pathlib.Path(directory), task)
                lines = [json.loads(line) for line in manifest.read_text().splitlines()]
                self.assertEqual(len(lines), task.sequences * training_task.STEPS_PER_EPOCH)
                for name in {line["features_filepath"] for line in lines}:
                    data = (manifest.parent / name).read_bytes()
                    self.assertEqual(data[:6], b"\x93NUMPY")
                    header = int.from_bytes(data[8:10], "little")
                    self.assertEqual((10 + header) % 64, 0)
                    self.assertEqual(len(data), 10 + header + 4 * task.frames * task.features)
                self.assertEqual({v for line in lines for v in line["labels"]}, set(range(1, task.classes)))
                config = training_task.write_config(manifest.parent, manifest, task, "f32").read_text()
                self.assertIn(f"bidirectional = true\ndropout = 0.0\nsubsample = {task.subsample}\n", config)

    def test_a_step_is_a_share_of_its_run_in_a_row(self):
        rows = [{"op": "lstm_forward", "case": "steps_h256_b8_t200_d1_bf16", "variant": v, "median_us": 900.0, **more}
                for v, more in (("cluster", {"stream_us": 200.0}), ("grid", {}))]
        self.assertEqual(figures.per_step_times(rows + [{"op": "lstm_forward", "case": "x_t3_", "status": "failed"}]),
                         {"steps_h256_b8_t200_d1_bf16": {"lstm_forward": {"cluster": 1.0, "grid": 4.5}}})

    def test_steps_and_training_steps_are_timed_by_every_variant_of_the_lstm(self):
        for op in sections.LSTM_OPS:
            every = {n.rpartition(":")[2] for n in self.list("--op", op)[1]}
            self.assertEqual({n.rpartition(":")[2] for n in self.list("--bench", "steps_h", "--op", op)[1]}, every)
            self.assertEqual({f for families in sections.FAMILIES.values() for f in families}, every)

    def test_a_training_step_is_timed_by_variants_that_take_its_layers(self):
        """One that does not would cost a run that says so."""
        conditions = {}
        table = (places.ROOT / "kernels" / "lstm" / "lstm_conditions.h").read_text().replace("lstm_unbounded", "1000000")
        for row in re.finditer(r'\{"(\w+)", (\d+), (\d+), (\d+), (\d+), ', table):
            conditions[row[1]] = [int(v) for v in row.groups()[1:]]
        self.assertEqual(set(conditions), {f for families in sections.FAMILIES.values() for f in families})
        for (task_name, dtype), families in sections.FAMILIES.items():
            task = training_task.TASKS[task_name]
            for family in families:
                smallest, largest, largest_f32, sequences = conditions[family]
                self.assertTrue(smallest <= task.hidden <= (largest_f32 if dtype == "f32" else largest)
                                and task.sequences <= sequences, (task_name, dtype, family))
        self.assertLessEqual(set(sections.BESIDE), set(next(iter(sections.FAMILIES.values()))))

if __name__ == "__main__":
    unittest.main()
