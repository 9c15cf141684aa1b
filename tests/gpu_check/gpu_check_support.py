"""What the tests of tools/gpu_check share: a test is a script called with its path and that of checkop, and
may go on with unittest's words."""

import pathlib
import sys

TOOL = pathlib.Path(sys.argv.pop(1))
REAL_CHECKOP = sys.argv.pop(1)
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOL.parent / "gpu"))
