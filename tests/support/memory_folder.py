"""Exit status 0: /dev/shm can be written to, and has room for the files of tests that run side by side."""

import os
import sys

LEAST = 4 << 30  # bytes

try:
    memory = os.statvfs("/dev/shm")
except OSError:
    sys.exit(1)
sys.exit(0 if os.access("/dev/shm", os.W_OK) and memory.f_bavail * memory.f_frsize >= LEAST else 1)
