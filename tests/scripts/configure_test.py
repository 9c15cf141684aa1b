"""configure_test.py SOURCE_ROOT: what tools/quickstart's configure step makes of a machine that lacks optional parts.

A copy of the sources is configured by the real Meson, again and again in one folder, as parts come and go; stand-ins are
the GPU's driver, the CUDA toolkit and headers. Ninja's stand-in ends each run when the build would begin.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
NVCC = """case "$*" in
  *--version*) echo "Cuda compilation tools, release {version}, V{version}.89" ;;
  *--list-gpu-arch*) printf 'compute_%s\\n' {architectures} ;;
  *)
    {compiles}
    while [ "$1" != -o ]; do shift; done
    touch "$2" ;;
esac"""
# A compiler that does not find headers whose names hold one of the words in HIDDEN.
COMPILER = """for word in "$@"; do
  case "$word" in
    *.cpp) for hidden in $HIDDEN; do if grep -q "$hidden" "$word"; then echo "no $hidden" >&2; exit 1; fi; done ;;
  esac
done
exec {compiler} "$@"
"""
CUDNN = "#define CUDNN_MAJOR {major}\n"
NCCL = "#define NCCL_VERSION(X, Y, Z) ((X) * 10000 + (Y) * 100 + (Z))\n#define NCCL_VERSION_CODE NCCL_VERSION(2, {minor}, 3)\n"


class Configure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.top = pathlib.Path(folder.name)
        for name in ("kernels", "bench/cases", "comm", "engine", "include", "tools"):
            shutil.copytree(ROOT / name, cls.top / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("meson.build", "meson_options.txt"):
            shutil.copy(ROOT / name, cls.top)
        cls.program("dpkg-query", 'echo "install ok installed"')
        cls.program("ninja", f"""case "$*" in
  *tools/rondo*) exit 1 ;;
esac
exec {shlex.quote(shutil.which("ninja"))} "$@\"""")
        compiler, *options = shlex.split(os.environ.get("CXX", "c++"))
        cls.program("c++", COMPILER.format(compiler=shlex.join([shutil.which(compiler), *options])))

    @classmethod
    def program(cls, name, does, folder="stand-ins"):
        file = cls.top / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/usr/bin/env bash\n" + does + "\n")
        file.chmod(0o755)

    def header(self, name, text, folder="toolkit/include"):
        file = self.top / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def toolkit(self, version, architectures="80 86 89 90", compiles=""):
        """A stand-in for the CUDA toolkit, with a library and the header that every toolkit has."""
        self.program("nvcc", NVCC.format(version=version, architectures=architectures, compiles=compiles), "toolkit/bin")
        self.header("cuda_runtime_api.h", "")
        self.header("cublasLt.h", "")
        (self.top / "toolkit" / "lib64").mkdir(exist_ok=True)
        (self.top / "toolkit" / "lib64" / "libcudart_static.a").write_bytes(b"!<arch>\n")

    def configure(self, capability, hidden="", anew=False, **environment):
        """Runs quickstart to where the build begins; the lines it says about what is left out, and how it builds."""
        if anew:  # Meson keeps variables of the environment
            shutil.rmtree(self.top / "build-quickstart", ignore_errors=True)
        self.program("nvidia-smi", f"echo '{capability}'")
        done = subprocess.run(
            [self.top / "tools" / "quickstart"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, "PATH": f"{self.top}/stand-ins:{os.environ['PATH']}", "CXX": f"{self.top}/stand-ins/c++",
                 "CUDA_HOME": f"{self.top}/toolkit", "HIDDEN": hidden, **environment})
        lines = re.sub(r"\x1b\[\d*m", "", done.stdout).splitlines()
        self.assertEqual(lines[-1], "quickstart: building build-quickstart failed", done.stdout)
        commands = json.loads((self.top / "build-quickstart" / "compile_commands.json").read_text())
        self.program_flags = next(c["command"] for c in commands if c["file"].endswith("tools/rondo.cc"))
        return [line for line in lines if line.startswith("without ")], next(x for x in lines if x.startswith("building"))

    def about(self, lines, part):
        """The one line about a part, without its name; none where nothing is said."""
        found = [line.removeprefix(f"without {part}: ") for line in lines if line.startswith(f"without {part}: ")]
        self.assertLessEqual(len(found), 1, lines)
        return found[0] if found else None

    def test_1_nothing_optional_is_there(self):
        (self.top / "no-packages").mkdir()
        for package in subprocess.run(["pkg-config", "--variable", "pc_path", "pkg-config"], stdout=subprocess.PIPE, text=True,
                                      check=True).stdout.strip().split(":"):
            for file in pathlib.Path(package).glob("*.pc") if os.path.isdir(package) else []:
                link = self.top / "no-packages" / file.name
                if not re.search("mpi|websockets|sndfile|libpng", file.name) and not link.exists():
                    link.symlink_to(file.resolve())
        lines, building = self.configure("9.0", hidden="gloo/", anew=True, PKG_CONFIG_LIBDIR=str(self.top / "no-packages"))
        self.assertEqual(sorted(lines), [f"without CUDA: no nvcc in {self.top}/toolkit/bin (CUDA_HOME), CUDA 12.0 or newer is wanted",
                                         "without Gloo: no libgloo-dev",
                                         "without MPI: no libopenmpi-dev, MPI 3 or newer is wanted",
                                         "without images other than PGM, PPM and PBM, and pages: no libpng-dev",
                                         "without recordings other than WAV: no libsndfile1-dev",
                                         "without rondo serve: no libwebsockets-dev, 4.1 or newer is wanted"])
        self.assertEqual(building, "building")
        self.assertNotIn("RONDO_HAVE", self.program_flags)

    def test_2_all_is_too_old(self):
        self.toolkit("11.8")
        self.header("gloo/rendezvous/context.h", "", "old")
        self.header("mpi.h", "#define MPI_VERSION 2\n", "old")
        self.header("ompi-c.pc", f"Name: MPI\nDescription: old\nVersion: 1\nCflags: -I{self.top}/old\n", "old")
        self.header("libwebsockets.pc", f"Name: libwebsockets\nDescription: damaged\nVersion: 4.1\nCflags: -I{self.top}/old\n", "old")
        self.header("libwebsockets.h", "#error damaged\n", "old")
        self.header("libgloo.a", "!<arch>\n", "old")
        lines, building = self.configure("9.0", anew=True, PKG_CONFIG_PATH=f"{self.top}/old", LIBRARY_PATH=f"{self.top}/old",
                                         CPLUS_INCLUDE_PATH=f"{self.top}/old")
        self.assertEqual(sorted(lines), ["without CUDA: nvcc 11.8 is too old, CUDA 12.0 or newer is wanted",
                                         "without Gloo: what is there is too old, or does not compile",
                                         "without MPI: what is there is too old, or does not compile, MPI 3 or newer is wanted",
                                         "without rondo serve: what is there does not compile, 4.1 or newer is wanted"])
        self.assertEqual(building, "building")
        self.assertNotIn("RONDO_HAVE", self.program_flags)

    def test_3_a_toolkit_that_does_not_know_the_gpu(self):
        self.toolkit("12.4")
        lines, building = self.configure("10.0")
        self.assertEqual(self.about(lines, "CUDA"), "nvcc 12.4 does not know sm_100, CUDA 12.8 or newer is wanted")
        self.assertEqual(building, "building")

    def test_4_a_toolkit_that_does_not_know_the_compiler(self):
        self.toolkit("12.4", compiles="echo 'host_config.h:143:2: error: #error -- unsupported GNU version!'; exit 1")
        lines, building = self.configure("9.0")
        self.assertRegex(self.about(lines, "CUDA"), r"^nvcc 12\.4 does not compile a kernel with \S+/c\+\+: .*unsupported GNU version")
        self.assertEqual(building, "building")

    def test_5_a_toolkit_without_its_companions(self):
        self.toolkit("12.8", "80 86 89 90 100 120")
        lines, building = self.configure("9.0\n8.0\n9.0", hidden="cudnn.h nccl.h")
        self.assertEqual(self.about(lines, "cuDNN"), "no cudnn.h, 9.0 or newer is wanted")
        self.assertEqual(self.about(lines, "NCCL"), "no nccl.h, 2.19 or newer is wanted")
        self.assertIsNone(self.about(lines, "CUDA"))
        self.assertEqual(building, "building for CUDA sm_80, sm_90a")
        self.assertNotIn("RONDO_HAVE_NCCL", self.program_flags)
        self.assertIn("RONDO_WITH_CUDA", self.program_flags)

    def test_6_companions_that_are_too_old(self):
        self.toolkit("12.8", "80 86 89 90 100 120")
        self.header("cudnn.h", CUDNN.format(major=8))
        self.header("nccl.h", NCCL.format(minor=18))
        lines, building = self.configure("9.0")
        self.assertEqual(self.about(lines, "cuDNN"), "cudnn.h is of an older version, 9.0 or newer is wanted")
        self.assertEqual(self.about(lines, "NCCL"), "nccl.h is of an older version, 2.19 or newer is wanted")
        self.assertEqual(building, "building for CUDA sm_90a")

    def test_7_all_is_there(self):
        self.toolkit("12.8", "80 86 89 90 100 120")
        self.header("cudnn.h", CUDNN.format(major=9))
        self.header("nccl.h", NCCL.format(minor=19))
        lines, building = self.configure("9.0")
        for part in ("CUDA", "cuBLASLt", "cuDNN", "NCCL"):
            self.assertIsNone(self.about(lines, part), lines)
        self.assertEqual(building, "building for CUDA sm_90a")
        self.assertIn("RONDO_HAVE_NCCL", self.program_flags)

    def test_8_an_incomplete_toolkit(self):
        self.toolkit("12.8")
        (self.top / "toolkit" / "lib64" / "libcudart_static.a").unlink()
        lines, building = self.configure("9.0")
        self.assertEqual(self.about(lines, "CUDA"), f"no libcudart_static.a in the toolkit, {self.top}/toolkit")
        self.assertEqual(building, "building")


unittest.main()
