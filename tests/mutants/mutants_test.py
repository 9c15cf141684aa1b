#!/usr/bin/env python3
"""mutants_test.py COMPILER: what tests/mutants/run makes of sources, and that it tells noticed from survived."""

import dataclasses
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from cxx_tokens import Source  # noqa: E402 (found by the line before)
from operators import OPERATORS, in_order_of, mutants_of  # noqa: E402
import suites  # noqa: E402

COMPILER = "c++"


def program():
    """tests/mutants/run as a module."""
    loader = importlib.machinery.SourceFileLoader("mutants_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants_run", loader))
    loader.exec_module(module)
    return module


def after(operator, body):
    """What an operator makes of a function with this body: the lines as they become."""
    text = f"void f() {{\n{body}\n}}\n"
    return [m.after for m in mutants_of("f.cc", text) if m.name.split(":")[2] == operator]


class Tokens(unittest.TestCase):
    def texts(self, text):
        return [t.text for t in Source(text).tokens]

    def test_no_comments_and_directives(self):
        text = '#include <a/b.h>\n#define X 1 + \\\n  2\nint /* a + b */ x = 3;  // 4 \\\n 5\nint y;\n  # if 7 > 6\n'
        self.assertEqual(self.texts(text), ["int", "x", "=", "3", ";", "int", "y", ";"])

    def test_strings_are_one_token(self):
        text = r'''a = "x + \" y" + 'q' + R"(1 "+ 2)" + R"--(a)" b)--" + u8"z"_s;'''
        kinds = [t.kind for t in Source(text).tokens]
        self.assertEqual(kinds.count("string"), 5)
        self.assertEqual(self.texts(text)[-2:], ['u8"z"_s', ";"])

    def test_numbers(self):
        for number in ("0", "1'000'000", "0x1p-24f", "1e-6", "0xffu", ".5f", "12ull", "1.0e+3"):
            self.assertEqual(self.texts(f"x={number};"), ["x", "=", number, ";"])

    def test_operators_longest_first(self):
        self.assertEqual(self.texts("a<<=b->*c<=>d>>e&&f"),
                         ["a", "<<=", "b", "->*", "c", "<=>", "d", ">>", "e", "&&", "f"])

    def test_binary_operators_have_spaces(self):
        s = Source("T* p = a * b; f<T>(x < y); auto&& r = p && q; return -x; const T& z = a & b;")
        self.assertEqual([t.text for i, t in enumerate(s.tokens) if s.is_binary(i) and t.text in "*<>&&-"],
                         ["*", "<", "&&", "&"])

    def test_sources_are_read(self):
        """Every eighth of them: all take seconds."""
        root = HERE.parent.parent
        for folder in ("kernels", "comm", "engine", "tools"):
            for path in sorted([*(root / folder).rglob("*.cc"), *(root / folder).rglob("*.cu")])[::8]:
                s = Source(path.read_text())
                brackets = sum(t.text in "()[]{}" for t in s.tokens if t.kind == "operator")
                self.assertEqual(len(s.partner), brackets, path)


class Operators(unittest.TestCase):
    CASES = {  # operator: (body, what its line may become, all of it)
        "sign": ("x = a + b - c;", ["x = a - b - c;", "x = a + b + c;"]),
        "product": ("x = a * b / c % d;", ["x = a + b / c % d;", "x = a * b * c % d;", "x = a * b / c / d;"]),
        "bound": ("x = g<T>(a < b, c >= d);", ["x = g<T>(a <= b, c >= d);", "x = g<T>(a < b, c > d);"]),
        "equality": ("x = a == b;", ["x = a != b;"]),
        "logic": ("x = a && b || c;", ["x = a || b || c;", "x = a && b && c;"]),
        "constant_up": ("x = a[2] + 0u;", ["x = a[3] + 0u;", "x = a[2] + 1u;"]),
        "constant_down": ("x = a[2] - 1 + 0;", ["x = a[1] - 1 + 0;"]),
        "factor": ("x = 0.5f * y + 0.0;", ["x = (1.5f * 0.5f) * y + 0.0;", "x = 0.5f * y + 1.0;"]),
        "dropped_term": ("x = f(a + b * -c, d) - g<T>(e);", ["x = f(a, d) - g<T>(e);", "x = f(a + b * -c, d);"]),
        "dropped_first": ("x = g<T>(a) * b + c - d; return y - z;",
                          ["x = c - d; return y - z;", "x = g<T>(a) * b + c - d; return - z;"]),
        "dropped_factor": ("x = a * b[c] / d + e;", ["x = a / d + e;", "x = a * b[c] + e;"]),
        "one_branch": ("x = a < b ? c + d : e;", ["x = c + d;", "x = e;"]),
        "dropped_condition": ("x = a && f(b, c) ? d : e;", ["x = a ? d : e;"]),
        "dropped_statement": ("int y = 1; if (a) y += 2; g(y); T z(3); return h(y);",
                              ["int y = 1; if (a) ; g(y); T z(3); return h(y);",
                               "int y = 1; if (a) y += 2; ; T z(3); return h(y);"]),
        "dropped_jump": ("if (a) break;", ["if (a) ;"]),
        "negated": ("if (a && b) x = 1;", ["if (!(a && b)) x = 1;"]),
        "min_max": ("x = std::min(a, b) + o.max(c);", ["x = std::max(a, b) + o.max(c);"]),
        "assigned": ("x += a;", ["x = a;"]),
        "last_left_out": ("for (int i = 0; i < n; ++i) g(i);", ["for (int i = 0; i + 1 < n; ++i) g(i);"]),
        "returned": ("return a == b;", ["return false;", "return true;"]),
        "swapped_arguments": ("g(a, b.c, 3);", ["g(b.c, a, 3);"]),
    }

    def test_each(self):
        self.assertEqual(set(self.CASES), set(OPERATORS))
        for operator, (body, wanted) in self.CASES.items():
            with self.subTest(operator):
                self.assertEqual(after(operator, body), wanted)

    def test_messages_are_passed_over(self):
        for body in ('RONDO_CHECK(a < b, "x", c + 1);', 'throw InputError(a + 1, b == 2);', "static_assert(a + 1 < 2);",
                     'fail("x", a + 1);', "using T = A<1>;"):
            self.assertEqual(mutants_of("f.cc", f"void f() {{ {body} }}\n"), [], body)

    def test_text_is_not_summed(self):
        self.assertEqual(after("sign", 'x = a + "b";'), [])

    def test_declarations_are_not_dropped(self):
        for body in ("const T* p = q;", "auto x = f();", "std::vector<int> v(3);", "T& r = s;", "return f();"):
            self.assertEqual(after("dropped_statement", body), [], body)


class Names(unittest.TestCase):
    TEXT = "void f() {\n  x = a + b;\n  y = a < 3;\n  x = a + b;\n}\n"

    def test_unique_and_counted_among_equal_lines(self):
        names = [m.name for m in mutants_of("k/f.cc", self.TEXT)]
        self.assertEqual(len(names), len(set(names)))
        signs = [n for n in names if ":sign:" in n]
        self.assertEqual([n.rsplit(":", 1)[1] for n in signs], ["0", "1"])
        self.assertTrue(signs[0].startswith("k/f.cc:"))

    def test_other_lines_do_not_matter(self):
        changed = "// more\nint z = 7;\n" + self.TEXT.replace("  y = a < 3;\n", "  y = a > 4;\n")
        old, new = ({m.name for m in mutants_of("f.cc", t) if "a + b" in m.before} for t in (self.TEXT, changed))
        self.assertEqual(old, new)

    def test_a_seed_draws_by_name(self):
        few, more = mutants_of("f.cc", self.TEXT), mutants_of("f.cc", self.TEXT.replace("}", "  z = 1 + c;\n}"))
        first = [m.name for m in in_order_of("1", few)]
        self.assertEqual(first, [m.name for m in in_order_of("1", more) if m.name in first])
        self.assertNotEqual(first, [m.name for m in in_order_of("2", few)])

    def test_apply_changes_one_place(self):
        m = next(m for m in mutants_of("f.cc", self.TEXT) if ":bound:" in m.name)
        self.assertEqual(m.apply(self.TEXT), self.TEXT.replace("a < 3", "a <= 3"))
        self.assertEqual((m.line, m.before, m.after), (3, "y = a < 3;", "y = a <= 3;"))


class Suites(unittest.TestCase):
    def test_every_folder_has_tests(self):
        """A source that is mutated by default names a program, unless it is left out on purpose."""
        run = program()
        listed = run.git("ls-files", cwd=HERE.parent.parent)
        if listed.returncode != 0:
            self.skipTest("no Git checkout")
        for path in listed.stdout.split():
            if any(suites.fnmatch.fnmatchcase(path, p) for p in [*run.SOURCES, "comm/*.cc"]):
                left_out = any(suites.fnmatch.fnmatchcase(path, p) for p in suites.LEFT_OUT)
                self.assertEqual(bool(suites.commands_for(path)), not left_out, path)

    def test_equivalent_mutants_are_those_of_today(self):
        """A line of equivalent.txt whose source has changed says nothing of the new one."""
        said = subprocess.run([sys.executable, HERE / "run", "--stale"], capture_output=True, text=True)
        if "no Git checkout" in said.stderr:
            self.skipTest("no Git checkout")
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "", ""))

    def test_kernels_go_to_the_backend_that_compiles_them(self):
        self.assertIn("sim", suites.commands_for("kernels/pool/pool.cu")[0])
        self.assertIn("cpu", suites.commands_for("kernels/pool/pool_simd.cc")[0])
        self.assertEqual(suites.commands_for("kernels/gemm/gemm_cublaslt.cc"), [])


class OneSource:
    """Stands for TreeCopy: a folder with one source, compiled and run as it is."""

    def __init__(self, folder, text):
        self.source = pathlib.Path(folder)
        (self.source / "engine" / "text").mkdir(parents=True)
        self.path = self.source / "engine" / "text" / "small.cc"
        self.path.write_text(text)

    def compile(self, program_name, environment=None):
        p = subprocess.run([COMPILER, "-o", str(self.source / "small"), str(self.path)], capture_output=True, text=True,
                           check=False)
        return None if p.returncode == 0 else p.stderr

    def run(self, command, seconds, environment=None, limited=False):
        p = subprocess.run([str(self.source / "small")], check=False)
        return p.returncode, ""


class Outcomes(unittest.TestCase):
    TEXT = ("int sum(int n) {\n  int s = 0;\n  for (int i = 0; i < n; ++i) s += i;\n  return s;\n}\n"
            "int unseen(int n) {\n  return n + 1;\n}\n"
            "int main() { return sum(4) == 6 ? 0 : 1; }\n")

    def test_noticed_survived_and_what_does_not_compile(self):
        run = program()
        with tempfile.TemporaryDirectory() as folder:
            copy = OneSource(folder, self.TEXT)
            of = {m.name.split(":")[2]: m for m in mutants_of("engine/text/small.cc", self.TEXT)}
            broken = dataclasses.replace(of["sign"], name="f.cc:0:broken:0", text="?")
            chosen = [of[operator] for operator in ("assigned", "last_left_out", "dropped_statement", "dropped_term")]
            records = run.run([*chosen, broken], run.Tests(copy, lambda text: None), 10)
            left = copy.path.read_text()
        outcomes = {r["name"].split(":")[2]: r["outcome"] for r in records}
        self.assertEqual(outcomes, {"assigned": "noticed", "last_left_out": "noticed", "dropped_statement": "noticed",
                                    "dropped_term": "survived", "broken": "does not compile"})
        self.assertEqual({r["by"] for r in records if r["outcome"] == "noticed"}, {"data_test"})
        self.assertEqual(left, self.TEXT)
        self.assertEqual(run.summary(records, 0), {"noticed": 3, "survived": 1, "equivalent": 0, "do_not_compile": 1,
                                                   "rate": 0.75})

    def test_an_error_before_any_error_ends_it(self):
        run = program()
        with tempfile.TemporaryDirectory() as folder:
            copy = OneSource(folder, self.TEXT.replace("== 6", "== 7"))
            tests = run.Tests(copy, lambda text: None)
            with self.assertRaises(SystemExit):
                tests.prepare([["small"]])


if __name__ == "__main__":
    COMPILER = sys.argv.pop() if len(sys.argv) > 1 and not sys.argv[-1].startswith("-") else COMPILER
    unittest.main()
