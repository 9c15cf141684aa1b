"""What tools/gpu_check is made of: its sections, forecasts, figures, and what it takes from checkop."""

import csv
import io
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from gpu_check_support import REAL_CHECKOP

# Of tools/gpu.
import figures
import places
import sections
import training_task


class Pieces(unittest.TestCase):
    def check(self):
        return sections.Check(checkop=REAL_CHECKOP, rehearses=True, end=time.monotonic() + 60)

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

    # The LSTM's kernels that stay for many steps, and poll.
    PERSISTENT = {f"lstm_{way}/{variant}" for way in ("forward", "backward")
                  for variant in ("cluster_split", "grid_cluster", "grid")}
    PERSISTENT |= {"lstm_stack_forward/wavefront", "lstm_stack_backward/wavefront"}

    def test_the_persistent_kernels_run_twice_before_any_other(self):
        found = {n.partition("/")[0] + "/" + n.rpartition(":")[2]
                 for n in self.list("--op", ",".join(self.check().ops_of("lstm_twice")))[1]}
        self.assertEqual(self.PERSISTENT - found, set())
        order = list(sections.COMMANDS["prove"])
        self.assertLess(max(map(order.index, ("lstm_twice", "full_size"))), min(order.index("ctc_twice"), order.index("digits")))

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
        named = self.list("--bench", *sections.BESIDE_PEERS, *self.check().alone())[1]
        ops = {name.partition("/")[0] for name in self.list("--bench")[1]}
        self.assertEqual({name.partition("/")[0] for name in named}, ops)
        self.assertEqual({n for n in every if "/bench" in n or "/peers" in n} - set(named), set())

    def test_the_persistent_kernels_run_at_full_size(self):
        # An option of several words takes all that follow it: patterns come first.
        rows = self.list(*sections.FULL_SIZE, "--op", ",".join(sections.LSTM_OPS + sections.STACK_OPS), "--against", sections.TRUSTED)[1]
        found = {f"{r.partition('/')[0]}/{r.rpartition(':')[2]}" for r in rows}
        self.assertEqual(self.PERSISTENT - found, set())

    def test_the_cases_that_are_named_exist(self):
        for pattern in sections.SANITIZED + sections.PROFILED:
            p = subprocess.run([REAL_CHECKOP, pattern, "--bench", "--list", "--backend", "sim"],
                               capture_output=True, text=True, check=True)
            self.assertNotEqual(p.stdout, "", pattern)

    def test_a_small_case_of_every_op_goes_through_the_sanitizer(self):
        sanitized = self.check().sanitized()
        cases = [json.loads(row) for row in self.list("--json", *sanitized)[1]]
        self.assertEqual({c["op"] for c in cases}, {n.partition("/")[0] for n in self.list()[1]})
        self.assertLess(max(c["host_bytes"] for c in cases), 8 << 20)
        self.assertLess(len({(c["op"], c["case"]) for c in cases}), 3 * len(sanitized))

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
                for v, more in (("cluster_split", {"stream_us": 200.0}), ("grid", {}))]
        self.assertEqual(figures.per_step_times(rows + [{"op": "lstm_forward", "case": "x_t3_", "status": "failed"}]),
                         {"steps_h256_b8_t200_d1_bf16": {"lstm_forward": {"cluster_split": 1.0, "grid": 4.5}}})

    def test_steps_and_training_steps_are_timed_by_every_variant_of_the_lstm(self):
        for op in sections.LSTM_OPS:
            every = {n.rpartition(":")[2] for n in self.list("--op", op)[1]}
            self.assertEqual({n.rpartition(":")[2] for n in self.list("--bench", "steps_h", "--op", op)[1]}, every)
            self.assertEqual({f for families in sections.FAMILIES.values() for f in families}, every)

    def test_a_training_step_is_timed_by_variants_that_take_its_layers(self):
        """One that does not would cost a run that says so."""
        conditions = {}
        table = (places.ROOT / "kernels" / "lstm" / "lstm_conditions.h").read_text().replace("lstm_unbounded", "1000000")
        for row in re.finditer(r'\{"(\w+)", (\d+), (\d+), (\d+), ', table):
            conditions[row[1]] = [int(v) for v in row.groups()[1:]]
        self.assertEqual(set(conditions), {f for families in sections.FAMILIES.values() for f in families})
        for (task_name, dtype), families in sections.FAMILIES.items():
            task = training_task.TASKS[task_name]
            for family in families:
                smallest, largest, largest_f32 = conditions[family]
                self.assertTrue(smallest <= task.hidden <= (largest_f32 if dtype == "f32" else largest),
                                (task_name, dtype, family))


if __name__ == "__main__":
    unittest.main()
