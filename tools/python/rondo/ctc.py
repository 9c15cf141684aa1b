"""The CTC loss (Graves et al. 2006) and its gradient."""

from __future__ import annotations

import ctypes
from ctypes import c_int64
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ._arrays import Array, as_array, int32_pointer, integers, strided
from ._library import Ctc, InvalidError, lib, set_options

_DTYPES = {"float32": 0, "bfloat16": 1, "float64": 2}
_REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


class CtcLoss(NamedTuple):
    """loss: a number, or float64 [sequences] with reduction "none". gradient: as the logits, of the number or of the sum
    of the losses; None where it was not wanted."""

    loss: Any
    gradient: "Optional[np.ndarray[Any, Any]]"


def ctc_loss(logits: Array, targets: Array, input_lengths: Optional[Array] = None,
             target_lengths: Optional[Array] = None, blank: int = 0, reduction: str = "mean",
             zero_infinity: bool = False, *, log_softmax: bool = False, gradient: bool = True,
             threads: int = 0) -> CtcLoss:
    """The CTC loss of a batch and its gradient, as torch.nn.functional.ctc_loss() takes them.

    logits: [frames, sequences, classes], or of one sequence [frames, classes]; float32, float64 or ml_dtypes' bfloat16,
        with any strides. The softmax is part of the loss.
    targets: [sequences, labels], or of all sequences one behind the other.
    input_lengths, target_lengths: of each sequence; None: all frames, all labels.
    reduction: "none", "sum", or "mean" of the losses divided by their number of labels.
    zero_infinity: labels that do not fit into the frames cost 0, not infinity. Their gradient is 0.
    log_softmax: `logits` are log-probabilities, and the gradient is of these.
    threads: that it computes with; 0: as many as there are processors.
    """
    x = as_array(logits, "logits")
    if x.dtype.name not in _DTYPES:
        raise TypeError(f"logits: dtype {x.dtype}, expected float32, float64 or bfloat16")
    if reduction not in _REDUCTIONS:
        raise InvalidError(f"reduction: '{reduction}', expected 'none', 'mean' or 'sum'")
    if x.ndim not in (2, 3):
        raise InvalidError(f"logits: shape {list(x.shape)}, expected [frames, sequences, classes] or [frames, classes]")
    batch = x if x.ndim == 3 else x[:, None, :]
    batch, strides = strided(batch)
    labels, counts = _labels(targets, target_lengths, batch.shape[1])
    b = Ctc()
    lib.ctc_init(ctypes.byref(b), ctypes.sizeof(b))
    b.dtype, b.reduction = _DTYPES[x.dtype.name], _REDUCTIONS[reduction]
    set_options(b, threads=threads, blank=blank, log_softmax=log_softmax, zero_infinity=zero_infinity)
    b.frames, b.sequences, b.classes = batch.shape
    b.logits, b.strides = batch.ctypes.data, (c_int64 * 3)(*strides)
    b.labels, b.label_lengths = int32_pointer(labels), int32_pointer(counts)
    if input_lengths is not None:
        lengths = _one_each(input_lengths, batch.shape[1], "input_lengths")
        b.lengths = int32_pointer(lengths)
    slope = np.empty_like(batch) if gradient else None
    if slope is not None:
        slope, slope_strides = strided(slope)
        b.gradient, b.gradient_strides = slope.ctypes.data, (c_int64 * 3)(*slope_strides)
    loss = np.zeros(batch.shape[1] if reduction == "none" else 1)
    lib.ctc_loss(ctypes.byref(b), loss.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
    told: Union[float, np.ndarray[Any, Any]] = loss if reduction == "none" and x.ndim == 3 else float(loss[0])
    return CtcLoss(told, slope if slope is None or x.ndim == 3 else slope[:, 0, :])


def _one_each(given: Array, count: int, name: str) -> "np.ndarray[Any, Any]":
    each = integers(given, name).ravel()
    if len(each) != count:
        raise InvalidError(f"{name}: {len(each)} numbers, expected {count}")
    return each


def _labels(targets: Array, given: Optional[Array], count: int) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """All labels one behind the other, and how many each sequence has."""
    labels = integers(targets, "targets")
    if labels.ndim == 2:
        if len(labels) != count:
            raise InvalidError(f"targets: {len(labels)} sequences, expected {count}")
        most = labels.shape[1]
        counts = np.full(count, most, np.int32) if given is None else _one_each(given, count, "target_lengths")
        for i in np.flatnonzero((counts < 0) | (counts > most)):
            raise InvalidError(f"target_lengths[{i}]: {counts[i]}, expected 0 to {most}")
        return np.concatenate([row[:n] for row, n in zip(labels, counts)] or [labels.ravel()]), counts
    if labels.ndim != 1:
        raise InvalidError(f"targets: shape {list(labels.shape)}, expected [sequences, labels] or [labels]")
    if given is None and count != 1:
        raise InvalidError(f"target_lengths: not given, and targets are one behind the other for {count} sequences")
    counts = np.array([len(labels)], np.int32) if given is None else _one_each(given, count, "target_lengths")
    if counts.min(initial=0) < 0 or int(counts.sum(dtype=np.int64)) != len(labels):
        raise InvalidError(f"target_lengths: {counts.sum(dtype=np.int64)} labels in all, targets hold {len(labels)}")
    return labels, counts
