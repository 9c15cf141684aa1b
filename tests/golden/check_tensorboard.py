"""Reads an event file with TensorBoard's own loader and prints what it holds.

    RONDO_EVENTS_COPY=/tmp/events.out.tfevents.1 build/tests/support/support_tests '[tensorboard]'
    python3 tests/golden/check_tensorboard.py /tmp/events.out.tfevents.1

Needs the `tensorboard` package; the tests themselves do not.
"""
import sys

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, LegacyEventFileLoader

for event in LegacyEventFileLoader(sys.argv[1]).Load():
    print(event.wall_time, event.step, event.file_version,
          [(v.tag, v.simple_value) for v in event.summary.value])
for event in EventFileLoader(sys.argv[1]).Load():
    for v in event.summary.value:
        print(event.step, v.tag, v.metadata.plugin_data.plugin_name, v.tensor.dtype,
              list(v.tensor.float_val), [s.decode() for s in v.tensor.string_val])
