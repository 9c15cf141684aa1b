"""sources_test.py SOURCE_ROOT: ninja builds sources that came after Meson was run, and does without those that went.

In a project of its own that finds its sources as rondo does, where compiling is copying.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

MESON_BUILD = """project('copies')
subdir('tools/sources')
subdir('kernels')
subdir('engine/io')
"""
LIBRARY = """foreach path : sources['LIBRARY']
  custom_target(input: path, output: 'LIBRARY'.underscorify() + '.' + path.underscorify(), build_by_default: true,
    command: ['cp', '@INPUT@', '@OUTPUT@'])
endforeach
"""


class Sources(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="rondo sources ")  # a path with blanks
        self.addCleanup(directory.cleanup)
        self.source = pathlib.Path(directory.name) / "source"
        self.build = pathlib.Path(directory.name) / "build"
        shutil.copytree(ROOT / "tools" / "sources", self.source / "tools" / "sources")
        self.write("meson.build", MESON_BUILD)
        for library in ("kernels", "engine/io"):
            self.write(f"{library}/meson.build", LIBRARY.replace("LIBRARY", library))
            self.write(f"{library}/first.cc")
        for folder in ("comm", "engine"):
            self.write(f"{folder}/meson.build")
        self.write("kernels/pool/pool.cu")
        self.run_it("meson", "setup", self.build, self.source)
        self.assertEqual(self.copies(), {"kernels.first_cc", "kernels.pool_pool_cu", "engine_io.first_cc"})

    def write(self, name, text=""):
        (self.source / name).parent.mkdir(parents=True, exist_ok=True)
        (self.source / name).write_text(text)

    def run_it(self, *command):
        p = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60,
                           check=False)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        return p.stdout

    def ninja(self):
        return self.run_it("ninja", "-C", self.build)

    def copies(self):
        """What is built, by a ninja that has nothing to do in the end."""
        self.ninja()
        self.assertIn("no work to do", self.ninja())
        targets = re.findall(r"^(.*_c[cu]): CUSTOM_COMMAND$",
                             self.run_it("ninja", "-C", self.build, "-t", "targets", "all"), re.MULTILINE)
        self.assertEqual([target for target in targets if not (self.build / target).is_file()], [])
        return {pathlib.PurePath(target).name for target in targets}

    def test_a_new_file(self):
        self.write("kernels/pool/pool_simd.cc")
        self.assertIn("kernels.pool_pool_simd_cc", self.copies())

    def test_new_folders(self):
        self.write("kernels/conv/deep/conv.cc")
        self.assertIn("kernels.conv_deep_conv_cc", self.copies())
        self.write("kernels/conv/deep/conv.cu")
        self.assertIn("kernels.conv_deep_conv_cu", self.copies())

    def test_a_renamed_file(self):
        (self.source / "engine/io/first.cc").rename(self.source / "engine/io/second.cc")
        self.assertEqual(self.copies(), {"kernels.first_cc", "kernels.pool_pool_cu", "engine_io.second_cc"})

    def test_a_folder_that_is_gone(self):
        shutil.rmtree(self.source / "kernels/pool")
        self.assertEqual(self.copies(), {"kernels.first_cc", "engine_io.first_cc"})

    def test_what_editors_write_configures_nothing(self):
        written = (self.build / "build.ninja").stat().st_mtime_ns
        for name in ("kernels/.#first.cc", "kernels/first.cc~", "kernels/pool/.pool.cu.swp"):
            self.write(name)
        self.copies()
        self.assertEqual((self.build / "build.ninja").stat().st_mtime_ns, written)

    def test_a_name_that_cannot_be_built(self):
        self.write("kernels/a name.cc")
        p = subprocess.run(["ninja", "-C", str(self.build)], capture_output=True, text=True, check=False)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("kernels/a name.cc: expected a name of", p.stdout + p.stderr)


if __name__ == "__main__":
    unittest.main()
