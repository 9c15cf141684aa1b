"""Training with batches of one's own."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Iterable, NamedTuple, Optional, Sequence, Union

from . import _library as c
from ._arrays import Array, int32_pointer, integers, matrix_of
from ._library import Handle, InvalidError, bytes_of, double, lib, make, path_bytes, set_options
from .training import Settings, settings_as_toml

Batch = Iterable["tuple[Array, Array]"]


class SessionResult(NamedTuple):
    """What a batch gave."""

    step: int  # updates so far
    loss: float  # mean of the sequences whose labels fit into their frames
    gradient_norm: float  # before clipping; 0 of an evaluation
    infeasible: int  # sequences whose labels do not fit: they count for nothing
    skipped: bool  # the gradient was not finite, and the weights are as they were


class Session(Handle):
    """A ctc model that is trained with batches of one's own: pairs of features [frames, columns], ready and normalised,
    and labels, of which 1 stands for alphabet[0]. One thread at a time.

        session = rondo.Session({"model": {"hidden": 128}}, features=40, alphabet="abc ")
        for batch in batches:
            print(session.train(batch).loss)
        session.save("model.safetensors")
    """

    def __init__(self, settings: Settings, *, features: int, alphabet: Union[str, Sequence[str]], threads: int = 0,
                 device: Optional[str] = None) -> None:
        """settings: as of train(); of the model, the optimiser and training (seed, threads, dtype).
        features: columns of a frame. alphabet: the characters that labels 1, 2, ... write.
        threads: 0: training.threads of the settings. device: "cpu" (None), "cuda" or "cuda:1".
        """
        toml, name = settings_as_toml(settings)
        symbols = [bytes_of(symbol, "alphabet") for symbol in alphabet]
        given = c.texts(symbols)
        o = c.SessionOptions()
        lib.session_options_init(ctypes.byref(o), ctypes.sizeof(o))
        set_options(o, features=features, threads=threads)
        o.alphabet, o.alphabet_size = given, len(symbols)
        if device is not None:
            o.device = bytes_of(device, "device")
        super().__init__(make(lib.session_new, lib.session_free, bytes_of(toml, "settings"), bytes_of(name, "settings"),
                              ctypes.byref(o)))

    def _run(self, function: Any, batch: Batch) -> SessionResult:
        kept, examples = [], []
        for i, pair in enumerate(batch):
            try:
                features, labels = pair
            except (TypeError, ValueError) as e:
                raise TypeError(f"example {i} of the batch: expected a pair of features and labels") from e
            matrix, array = matrix_of(features, ("frames", "columns"), f"features of example {i}")
            numbers = integers(labels, f"labels of example {i}")
            if numbers.ndim != 1:
                raise InvalidError(f"labels of example {i}: shape {list(numbers.shape)}, expected [labels]")
            kept.append((array, numbers))
            examples.append(c.Example(matrix, int32_pointer(numbers), len(numbers)))
        r = c.SessionResult(size=ctypes.sizeof(c.SessionResult))
        function(self._live(), (c.Example * len(examples))(*examples), len(examples), ctypes.byref(r))
        return SessionResult(r.step, r.loss, r.gradient_norm, r.infeasible, bool(r.skipped))

    def train(self, batch: Batch) -> SessionResult:
        """One update of the weights by the mean gradient of a batch."""
        return self._run(lib.session_train, batch)

    def evaluate(self, batch: Batch) -> SessionResult:
        """The loss of a batch, without dropout."""
        return self._run(lib.session_evaluate, batch)

    def set_learning_rate(self, rate: float) -> None:
        """Of the updates from now on; until then it is optimizer.lr of the settings, without a schedule."""
        lib.session_set_learning_rate(self._live(), double(rate, "rate"))

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes a model file, which Recognizer reads."""
        lib.session_save(self._live(), path_bytes(path))

    def load(self, path: "str | os.PathLike[str]") -> None:
        """Takes the weights of a model of the same layers and alphabet; the optimiser begins anew."""
        lib.session_load(self._live(), path_bytes(path))
