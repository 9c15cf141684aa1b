"""What tools/cuda/budget makes of the compiler's words, ctc_times and lstm_times of machine code. Needs no nvcc."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "tools" / "cuda"))
sys.dont_write_bytecode = True
import nvcc as cuda  # noqa: E402
import sass  # noqa: E402


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


budget = load(ROOT / "tools" / "cuda" / "budget")
ctc_times = load(ROOT / "tools" / "cuda" / "ctc_times")
lstm_times = load(ROOT / "tools" / "cuda" / "lstm_times")

PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1afPf' for 'sm_90a'
ptxas info    : Function properties for _Z1afPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 29 registers, used 1 barriers, 64 bytes smem, 552 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90a'
ptxas info    : Function properties for _Z1bPf
    88 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 88 bytes cumulative stack size
ptxas info    : Function properties for _Z6helperv
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_80'
ptxas info    : Function properties for _Z1aPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 64 bytes smem, 552 bytes cmem[0]
"""

PTX = """\
.visible .entry _Z1aPf(
\t.param .u64 _Z1aPf_param_0
)
{
\tcp.async.cg.shared.global [%r1], [%rd2], 16, %r3;
\tcp.async.ca.shared.global [%r1], [%rd2], 4, %r3;
\tcp.async.wait_group 0;
\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r2}, {%r3}, {%f1};
\t// mma.sync in a comment
\tbar.sync 0;
\tbarrier.sync 0;
$L__BB0_2:
\tret;

}
.func helper()
{
\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r2}, {%r3}, {%f1};
}
.visible .entry _Z1bPf(
)
.maxntid 256, 1, 1
{
\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1;
\tatom.global.add.u32 %r1, [%rd1], 1;
\tld.global.nc.u32 %r1, [%rd1];
\tld.global.L1::no_allocate.nc.v4.f32 {%f1}, [%rd1];
\tld.global.u32 %r1, [%rd1];
\tld.global.u8 %r1, [%rd1];
\tld.u8 %r1, [%rd1];
\tld.param.u8 %r1, [p];
}
"""


class Parsing(unittest.TestCase):
    def test_registers_stack_spills_and_shared_memory_of_each_entry(self):
        by_architecture = cuda.parse_ptxas(PTXAS)
        self.assertEqual(list(by_architecture), ["90a", "80"])
        self.assertEqual(by_architecture["80"]["_Z1aPf"].registers, 40)
        entries = by_architecture["90a"]
        self.assertEqual(list(entries), ["_Z1afPf", "_Z1bPf"])
        a, b = entries.values()
        self.assertEqual((a.registers, a.stack, a.spilled, a.shared, a.constant), (29, 0, 0, 64, 552))
        self.assertEqual((b.registers, b.stack, b.spilled, b.shared), (255, 88, 28, 0))

    def test_a_build_keeps_what_the_compiler_says_and_passes_on_the_rest(self):
        warning = "x.cu(3): warning: variable is never used\n"
        with tempfile.TemporaryDirectory() as directory:
            said = pathlib.Path(directory) / "k.cu.ptxas"
            def compile_kernel(status):
                program = f"import sys; sys.stderr.write({PTXAS + warning!r}); sys.exit({status})"
                return subprocess.run([sys.executable, ROOT / "tools" / "cuda" / "compile_kernel.py", said,
                                       sys.executable, "-c", program], capture_output=True, text=True, check=False)
            p = compile_kernel(0)
            self.assertEqual((p.returncode, p.stderr), (0, warning))
            p = compile_kernel(3)
            self.assertEqual((p.returncode, p.stderr), (3, PTXAS + warning))
            source = pathlib.Path("kernels/k/k.cu")
            measured, complaints = budget.read_said([said], [source])
            self.assertEqual(complaints, [])
            self.assertEqual({a: len(e) for a, e in measured.items()}, {"90a": 2, "80": 1})
            said.write_text(PTXAS + "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to x.\n")
            _, complaints = budget.read_said([said], [source])
            self.assertEqual(len(complaints), 1)
            self.assertIn("'setmaxnreg' ignored", complaints[0])
            _, complaints = budget.read_said([said], [source, pathlib.Path("kernels/m/m.cu")])
            self.assertIn("kernels/m/m.cu: none of the files", complaints[-1])

    def test_instructions_are_counted_per_entry(self):
        counts = cuda.count_instructions(PTX)
        self.assertEqual(list(counts), ["_Z1aPf", "_Z1bPf"])
        a, b = counts.values()
        self.assertEqual({k: n for k, n in a.items() if n}, {"mma": 1, "cp.async": 2, "bar.sync": 2})
        self.assertEqual({k: n for k, n in b.items() if n}, {"wgmma": 1, "atomics": 1, cuda.NON_COHERENT: 2, cuda.BYTE_LOADS: 2})

    def test_names_lose_namespaces_and_parameters_but_not_template_arguments(self):
        for full, short in {
            "void rondo::cuda::(anonymous namespace)::forward<float, rondo::bf16>(int, T1 *)":
                "forward<float, bf16>",
            "void rondo::cuda::<unnamed>::k<(rondo::Linear)2, (bool)1>(float *)":
                "k<(Linear)2, (bool)1>",
            "rondo::cuda::(anonymous namespace)::plain(int)": "plain",
        }.items():
            self.assertEqual(cuda.short_name(full), short)


class Comparing(unittest.TestCase):
    LIMITS = {"nvcc": "1", "sm_90a": {"k": {"registers": 40, "stack": 0, "shared": 16}}}

    def complaints(self, same_compiler=True, name="k", **fields):
        entry = cuda.Entry(**({"registers": 40, "shared": 16} | fields))
        return budget.compare(self.LIMITS, {name: entry}, "90a", same_compiler)

    def test_within_the_budget(self):
        self.assertEqual(self.complaints(), [])
        self.assertEqual(self.complaints(registers=3, shared=0), [])

    def test_growth(self):
        self.assertIn("registers 41", self.complaints(registers=41)[0])
        self.assertIn("stack 8", self.complaints(stack=8)[0])
        self.assertIn("shared 17", self.complaints(shared=17)[0])

    def test_any_spill_with_any_compiler(self):
        self.assertIn("spills 4 bytes", self.complaints(spilled=4)[0])
        self.assertIn("spills 4 bytes", self.complaints(spilled=4, same_compiler=False)[0])

    def test_another_compiler_may_use_other_registers(self):
        self.assertEqual(self.complaints(registers=90, same_compiler=False), [])

    def test_kernels_that_are_new_or_gone(self):
        said = self.complaints(name="other")
        self.assertTrue(any("other: not in the budget" in s for s in said))
        self.assertTrue(any("k: in the budget" in s for s in said))

    def test_instructions_of_persistent_kernels_are_the_stored_ones(self):
        name = "kernels/lstm/gpu/lstm_grid_forward.cu: k"
        counts = {name: {"mma": 8, "atomics": 0}, "kernels/cast/cast.cu: c": {"mma": 1, "atomics": 0}}
        self.assertEqual(budget.compare_instructions({name: {"mma": 8}}, counts, "90a"), [])
        self.assertIn("stored are {'mma': 16}",
                      budget.compare_instructions({name: {"mma": 16}}, counts, "90a")[0])
        # None of them may be there, stored or not.
        loads = {name: {"mma": 8, cuda.NON_COHERENT: 2}}
        self.assertIn("other blocks write", budget.compare_instructions(loads, loads, "90a")[0])
        loads = {name: {"mma": 8, cuda.BYTE_LOADS: 4}}
        self.assertIn("4 byte loads", budget.compare_instructions(loads, loads, "90a")[0])
        self.assertIn("stored are none", budget.compare_instructions({}, counts, "90a")[0])
        self.assertIn("of no such kernel",
                      budget.compare_instructions({name: {"mma": 8}}, {}, "90a")[0])


def lattice(*loops):
    """Machine code of one loop after another: (opcode that tells the role, instructions), each of one cycle."""
    code = []
    for opcode, count in loops:
        first = 16 * len(code)
        for text in [f"{opcode} R1, R2", *["IMAD R1, R2, R3"] * (count - 3), "BAR.SYNC 0x0", f"@P0 BRA 0x{first:x}"]:
            code.append(sass.Instruction(16 * len(code), text))
    return code


class Cycles(unittest.TestCase):
    def test_a_turn_waits_for_its_scoreboards(self):
        load = sass.Instruction(0, "LDS R1, [R2]", writes=0)
        use = sass.Instruction(16, "FADD R1, R1, R3", stall=4, waits=1)
        self.assertEqual(sass.cycles([load, use]), sass.LATENCY["LDS"] + 4)
        use.waits = 2  # another scoreboard
        self.assertEqual(sass.cycles([load, use]), 1 + 4)

    def test_jumps_into_the_midst_of_a_loop_are_no_loops(self):
        code = lattice(("FMNMX", 50))
        code += [sass.Instruction(800, "EXIT"), sass.Instruction(816, "BRA 0x40")]  # for lanes that have diverged
        self.assertEqual([(number, len(turn)) for number, turn in sass.turns(code)], [(0, 50)])


class CtcTimes(unittest.TestCase):
    FIRST = [("FMNMX", 80), ("MOV", 48), ("LDGSTS", 40)] * 2
    SECOND = [("FMNMX", 88), ("FADD", 40), ("LDGSTS", 40)] * 2

    def test_tiles(self):
        for labels, pairs, walkers, stages in [(0, 1, 1, True), (31, 1, 1, True), (32, 2, 1, True), (63, 2, 1, True),
                                               (64, 4, 1, True), (127, 4, 1, True), (128, 4, 2, True),
                                               (255, 4, 2, True), (256, 4, 3, True), (511, 4, 4, True),
                                               (512, 4, 5, True), (1023, 4, 8, True)]:
            self.assertEqual(ctc_times.tiling(labels), ctc_times.Tiling(pairs, walkers, stages), labels)
        self.assertFalse(ctc_times.tiling(128, stages=False).stages)
        self.assertEqual([ctc_times.tiling(labels).blocks for labels in (127, 511, 512, 1023)], [1, 1, 2, 2])
        self.assertEqual(ctc_times.tiling(1023, stages=False).blocks, 1)
        self.assertTrue(ctc_times.tiling(127, stages=False).stages)

    def test_tiles_are_those_of_the_kernels(self):
        header = (ROOT / "kernels" / "ctc" / "ctc_gpu.h").read_text()
        for line in ("if (pairs <= 32) return {1, 1, 1};", "if (pairs <= 64) return {2, 1, 1};",
                     "return {4, (pairs + 127) / 128, 1};", "return pairs == 1 ? 7 : pairs == 2 ? 6 : 8;"):
            self.assertIn(line, header)
        self.assertIn(f"ctc_staged_warps = {ctc_times.STAGES};", header)
        strips = (ROOT / "kernels" / "ctc" / "gpu" / "ctc_strips_gpu.h").read_text()
        self.assertIn(f"strip_spans = {ctc_times.SPANS}, strip_launches = strip_spans + 1;", strips)

    def test_ticks_that_are_unrolled_by_two_are_two(self):
        code = [sass.Instruction(16 * i, text) for i, text in
                enumerate(["LDGSTS R1, R2", *["IMAD R1, R2, R3"] * 98, "BAR.SYNC 0x0"] * 2 + ["@P0 BRA 0x0"])]
        self.assertEqual([(t.role, t.instructions) for t in ctc_times.ticks(code)], [("loader", 100.5)])

    def test_a_walker_or_the_scheduler_of_its_helpers_bounds_a_tick(self):
        p = ctc_times.predict({"lattice<4, 1, StoredEmissions>": lattice(*self.FIRST, *self.SECOND)}, 100, 1000, 1)
        # Chunks have 8 frames. 48 + 40 instructions of an ender and a loader that share a scheduler, then 88 of a walker.
        self.assertEqual((p.per_frame, p.bound), ([11, 11], ["issue", "walker"]))
        self.assertAlmostEqual(p.microseconds, 2 * (63 + 1) * 88 / 1e3)

    def test_each_further_walker_starts_a_tick_later(self):
        functions = {f"lattice_half<4, true, (Half){half}>": lattice(*loops)
                     for half, loops in enumerate((self.FIRST, self.SECOND))}
        p = ctc_times.predict(functions, 511, 1000, 1)
        # With four walkers a scheduler has one of each role.
        self.assertEqual((p.per_frame, p.bound), ([21, 21], ["issue", "issue"]))
        self.assertAlmostEqual(p.microseconds, 2 * (63 + 3 + 1) * 168 / 1e3)

    def test_two_blocks_follow_each_other_by_launches(self):
        functions = {f"lattice_strips<(Half){half}>": lattice(*loops)
                     for half, loops in enumerate((self.FIRST, self.SECOND))}
        p = ctc_times.predict(functions, 1000, 1000, 1)
        # Four launches of a third of the 63 chunks; a block has four walkers as above.
        self.assertEqual((p.per_frame, p.bound), ([21, 21], ["issue", "issue"]))
        self.assertAlmostEqual(p.microseconds, 2 * 4 * (21 + 3 + 1) * 168 / 1e3)

    def test_code_of_another_shape_is_refused(self):
        for loops in (self.FIRST, self.SECOND + self.FIRST, self.FIRST + self.SECOND[1:]):
            with self.assertRaises(ctc_times.Unexpected):
                ctc_times.predict({"lattice<4, 1, StoredEmissions>": lattice(*loops)}, 100, 1000, 1)
        with self.assertRaises(ctc_times.Unexpected):
            ctc_times.predict({}, 100, 1000, 1)


class LstmTimes(unittest.TestCase):
    @staticmethod
    def step(between, instructions=100):
        """A loop of one-cycle instructions with so many between arrival and wait."""
        texts = ["UCGABAR_ARV", *["IMAD R1, R2, R3"] * between, "UCGABAR_WAIT"]
        texts += ["IMAD R1, R2, R3"] * (instructions - len(texts) - 1) + ["@P0 BRA 0x0"]
        return [sass.Instruction(16 * i, text) for i, text in enumerate(texts)]

    def rows(self, split, between, instructions=100):
        name = f"cluster_forward<float, 4, 2, (cluster::Barrier){split}>"
        return lstm_times.cluster_rows({name: self.step(between, instructions), "other": []})

    def test_a_barrier_costs_what_is_not_done_meanwhile(self):
        self.assertEqual(self.rows(1, 0), [("forward", "float", True, 128, 16, 100 + 269)])
        self.assertEqual(self.rows(1, 40), [("forward", "float", True, 128, 16, 100 + 229)])
        self.assertEqual(self.rows(1, 300, 400), [("forward", "float", True, 128, 16, 400)])
        # A barrier that is waited for where it is arrived at costs all of it.
        self.assertEqual(self.rows(0, 0), [("forward", "float", False, 128, 16, 100 + lstm_times.BARRIER)])

    def test_a_step_with_two_barriers_or_none_is_refused(self):
        name = "cluster_forward<float, 4, 2, (cluster::Barrier)1>"
        twice = self.step(1)[:-2] + self.step(1)
        for i, x in enumerate(twice):
            x.address = 16 * i
        for code in (lattice(("MOV", 60)), twice):
            with self.assertRaises(lstm_times.Unexpected):
                lstm_times.cluster_rows({name: code})
        with self.assertRaises(lstm_times.Unexpected):
            lstm_times.cluster_rows({"cluster_sideways": self.step(1)})

    def test_a_tile_of_fused_has_as_many_turns_of_each_loop_as_a_thread_has_numbers(self):
        inner = lattice(("LDG", 10), ("LDG", 20), ("FFMA", 30))
        outer = [sass.Instruction(0, "MOV R1, R2")]
        for x in inner:
            outer.append(sass.Instruction(x.address + 16, x.text if x.target is None else f"@P0 BRA 0x{x.target + 16:x}"))
        outer.append(sass.Instruction(16 * len(outer), "@P1 BRA 0x0"))
        functions = {f"{phase}_step<{dtype}>": outer for phase in ("forward", "backward") for dtype in ("bf16", "float")}
        self.assertEqual({row[2] for row in lstm_times.fused_rows(functions)}, {10 + 4 * 20 + 8 * 30})
        functions["forward_step<bf16>"] = lattice(("LDG", 10), ("FFMA", 20), ("LDG", 30), ("FFMA", 30))
        with self.assertRaises(lstm_times.Unexpected):
            lstm_times.fused_rows(functions)

    def test_the_shapes_are_those_of_the_kernels(self):
        header = (ROOT / "kernels/lstm/gpu/lstm_cluster.h").read_text()
        self.assertIn(f"block_cells = {lstm_times.CLUSTER_BLOCK}, tile_sequences = {lstm_times.TILE_SEQUENCES};", header)
        fused = (ROOT / "kernels/lstm/gpu/lstm_fused.cu").read_text()
        self.assertIn("tile_rows = 16, tile_columns = 64, tile_cells = 16, tile_depth = 32;", fused)


if __name__ == "__main__":
    unittest.main()
