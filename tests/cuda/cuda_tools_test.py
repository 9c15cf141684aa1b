"""What tools/cuda/budget makes of the compiler's words. Needs no nvcc."""

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


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


budget = load(ROOT / "tools" / "cuda" / "budget")

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


if __name__ == "__main__":
    unittest.main()
