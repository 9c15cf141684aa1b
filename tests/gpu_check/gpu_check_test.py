"""tools/gpu_check against made-up programs, since the machine that runs this may have no GPU."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

from gpu_check_support import REAL_CHECKOP, TOOL
from made_up_programs import CHECKOP, MANY_CASES, NCCL_CHECK, RONDO, write_program

# Of tools/gpu.
import forecast
import places
import sections
import training_task
import watch


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


class GpuCheck(unittest.TestCase):
    def run_tool(self, gpu=True, status="passed", moves=False, wer=0.01, sleep=0, nccl="passed", arguments=(),
                 which="others_twice", trouble="", command="prove", tried=""):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            write_program(build / "checkop", CHECKOP.replace("GPU", str(gpu))
                          .replace("STATUS", repr(status)).replace("MOVES", str(moves))
                          .replace("TROUBLE", repr(trouble)))
            task = training_task.TASKS["bilstm"]
            frames = task.sequences * task.frames
            write_program(build / "rondo", RONDO.replace("SLEEP", str(sleep))
                          .replace("TRIED", repr(tried)).replace("WER", repr(wer)).replace("FPS", repr(frames / 0.025)))
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
            self.assertTrue(lines[5].startswith("families"), lines)
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

    def test_the_trial_tells_what_rondo_found_and_a_variant_that_is_wrong(self):
        p, results, _ = self.run_tool(which="trial")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        found = results[0]["sections"]["trial"]
        self.assertEqual(found["tried"], ["tried lstm_forward bf16 h512 d2 n32: grid, 2.0 us a time step (portable 4.0)"])
        wrong = "warning: lstm_forward grid (bf16 h512 d2 n32) is not used here: y: other bits in a second run"
        p, results, _ = self.run_tool(which="trial", tried=wrong)
        self.assertEqual(p.returncode, 1, p.stdout + p.stderr)
        self.assertEqual(results[0]["sections"]["trial"]["warnings"], [wrong])

    def test_each_family_is_timed_and_one_that_fails_or_declines_has_no_time(self):
        p, results, _ = self.run_tool(which="families")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        found = results[0]["sections"]["families"]
        self.assertEqual(found["fastest"], {
            "bilstm bf16": "bilstm bf16 cluster_split", "bilstm f32": "bilstm f32 portable",
            "brain_to_text bf16": "brain_to_text bf16 portable", "algoperf f32": "algoperf f32 cluster_split"})
        self.assertAlmostEqual(found["ours"]["bilstm bf16 cluster_split"]["median_ms"], 12.5)
        self.assertAlmostEqual(found["ours"]["bilstm f32 portable"]["median_ms"], 25.0)
        self.assertIn("the GPU was lost", found["ours"]["bilstm bf16 grid"]["detail"])
        self.assertIn("took none", found["ours"]["brain_to_text bf16 grid_cluster"]["detail"])

    def test_a_result_says_how_often_each_variant_passed(self):
        result = self.run_tool()[1][0]
        self.assertEqual(result["sections"]["others_twice"]["variants"]["a/fast"],
                         {"passed": 4, "failed": 0, "moved": 0})
        moving = self.run_tool(moves=True)[1][0]
        self.assertEqual(moving["sections"]["others_twice"]["variants"]["a/fast"]["moved"], 2)

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
                mock.patch.object(time, "monotonic", lambda: 1000.0), \
                mock.patch.object(sys, "argv", ["gpu_check", "prove", "--build", directory, "--out", directory + "/out",
                                                "--sections", "others_twice,digits", "--minutes", "0.2"]), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tool.main(), 0)
        # The digits' own share of the 12 s are 5.7 s; the kernels before them took none of theirs.
        self.assertEqual([name for name, _ in ends], ["others_twice", "digits"])
        self.assertAlmostEqual(ends[0][1], 1000 + 12 * 60 / 145)
        self.assertAlmostEqual(ends[1][1], 1012)

    def test_the_sections_of_each_command_together_take_nine_minutes_at_most(self):
        for command, budgets in sections.COMMANDS.items():
            self.assertLessEqual(sum(budgets.values()), 9 * 60, command)
            for section in budgets:
                self.assertTrue(callable(getattr(sections.Check, section)))


if __name__ == "__main__":
    unittest.main()
