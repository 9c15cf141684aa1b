"""Training, as `rondo train` does it."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import threading
from typing import Any, Callable, Mapping, NamedTuple, Optional, Union

from . import _library as c
from ._library import bytes_of, lib, set_options, text_of

Settings = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class TrainingStep(NamedTuple):
    """An update of the weights."""

    step: int  # updates so far
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float


class Validation(NamedTuple):
    """What the model does on the development data; `metric` chooses the best one."""

    step: int
    loss: float
    metric: float
    best: bool  # whether this one is the best so far


class Training(NamedTuple):
    """What a training did."""

    steps: int
    epochs: int
    seconds: float
    best_metric: float
    stopped: bool  # whether stop() said so


def _toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Tables as TOML. JSON's strings, numbers and lists are TOML's, too."""
    values, tables = [], []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = f"{path}.{key}" if path else key
            tables.append(f"[{inner}]\n{_toml(value, inner)}")
        else:
            shown = os.fspath(value) if isinstance(value, os.PathLike) else value
            try:
                values.append(f"{key} = {json.dumps(shown, ensure_ascii=False)}\n")
            except TypeError as e:
                raise TypeError(f"settings: {path}.{key} is a {type(value).__name__}: {e}") from e
    return "".join(values) + "".join(tables)


def settings_as_toml(settings: Settings) -> "tuple[str, str]":
    """The text of settings, and what it is called in messages."""
    if isinstance(settings, os.PathLike):
        return pathlib.Path(settings).read_text(encoding="utf-8"), os.fspath(settings)
    return _toml(settings) if isinstance(settings, Mapping) else settings, "the settings"


class _Run:
    """A training in a thread of its own, so that the caller's hears signals as of Ctrl-C. What a callback raises stops the
    training, and is raised behind it."""

    def __init__(self, stop: Optional[Callable[[], bool]]) -> None:
        self.raised: Optional[BaseException] = None
        self._stop = stop

    def callback(self, kind: Any, function: Optional[Callable[[Any], object]], convert: Callable[[Any], Any]) -> Any:
        """A function of Python's for the library."""
        if function is None:
            return kind(0)
        return kind(lambda _, given: self._guarded(lambda: function(convert(given))))

    def stop(self, _: Any) -> int:
        """Asked between updates."""
        wanted = self._stop is not None and self._guarded(self._stop)
        return int(bool(wanted) or self.raised is not None)

    def _guarded(self, work: Callable[[], Any]) -> Any:
        if self.raised is None:
            try:
                return work()
            except BaseException as e:  # it must not go through the library
                self.raised = e
        return None

    def run(self, work: Callable[[], Any]) -> None:
        """Does the work and raises what it or a callback raised."""
        is_over = threading.Event()  # join() takes a thread for ended when a signal comes

        def worker() -> None:
            self._guarded(work)
            is_over.set()

        threading.Thread(target=worker, name="rondo.train").start()
        while not is_over.is_set():
            try:
                is_over.wait()
            except BaseException as e:  # a signal's; the update that has been begun is ended and saved
                self.raised = self.raised or e
        if self.raised is not None:
            raise self.raised


def train(settings: Settings, *, on_step: Optional[Callable[[TrainingStep], object]] = None,
          on_validation: Optional[Callable[[Validation], object]] = None,
          on_message: Optional[Callable[[str], object]] = None, stop: Optional[Callable[[], bool]] = None,
          resume: bool = False, threads: int = 0, device: Optional[str] = None) -> Training:
    """Trains a model.

    settings: TOML as a str, a file of it as a pathlib.Path, or a dict of its tables. docs/settings.md has them all.
    on_step, on_validation, on_message: called with what has happened, in a thread of the training.
    stop: asked between updates; True saves the run and returns. An exception in any of these does so, too, and is raised.
    resume: goes on from the newest checkpoint, if there is one.
    threads: 0: training.threads of the settings. device: "cpu" (None), "cuda" or "cuda:1".
    """
    toml, name = settings_as_toml(settings)
    o = c.TrainOptions()
    lib.train_options_init(ctypes.byref(o), ctypes.sizeof(o))
    run = _Run(stop)
    o.message = run.callback(c.Message, on_message, text_of)
    o.stepped = run.callback(c.Stepped, on_step, lambda p: TrainingStep(
        p[0].step, p[0].epoch, p[0].loss, p[0].learning_rate, p[0].gradient_norm))
    o.validated = run.callback(c.Validated, on_validation, lambda p: Validation(
        p[0].step, p[0].loss, p[0].metric, bool(p[0].best)))
    o.stop = c.Stop(run.stop)
    set_options(o, resume=resume, threads=threads)
    if device is not None:
        o.device = bytes_of(device, "device")
    summary = c.Training(size=ctypes.sizeof(c.Training))
    given = bytes_of(toml, "settings"), bytes_of(name, "settings")
    run.run(lambda: lib.train(*given, ctypes.byref(o), ctypes.byref(summary)))
    return Training(summary.steps, summary.epochs, summary.seconds, summary.best_metric, bool(summary.stopped))
