"""Every error that a user can meet, each with the exit code that the command line returns for it.

A message names the thing (node, operator, tensor, file), what was expected, what was found, and what to do.
"""


class LuminalError(Exception):
    """Base of all errors raised on purpose. Raised bare only for internal faults: please report the message."""

    exit_code = 70


class UnsupportedModel(LuminalError):
    """The model uses an operator, opset, attribute or dtype that this version does not know.

    Fix: `luminal-onnx check model.onnx` lists every such use in one report; rewrite or re-export those nodes.
    """

    exit_code = 2


class InvalidModel(LuminalError):
    """The file is not a valid ONNX model: damaged protobuf, missing tensors, cycles, contradicting shapes.

    Fix: re-export the model; `python -m onnx.checker` shows more about many of these.
    """

    exit_code = 4


class InvalidInput(LuminalError):
    """A feed or an option does not fit the model: wrong name, rank, dtype, size, or a dim outside its range."""

    exit_code = 4


class InvalidArtifact(LuminalError):
    """The artifact is truncated, altered, of a newer format, or lacks what this machine needs."""

    exit_code = 4


class UnfitEnvironment(LuminalError):
    """This machine or account does not let the command work: a cache folder that cannot be used, a full disk."""

    exit_code = 3


class MissingDependency(UnfitEnvironment):
    """A library, compiler or driver that this command needs is not installed. The message says what to install."""


class NoDevice(MissingDependency):
    """No usable NVIDIA GPU or driver. Fix: run on a machine with one, or name `device="cpu"`."""


class KernelFault(LuminalError):
    """A kernel broke a rule of the machine (race, bounds, barrier, uninitialised read). A bug in code generation."""


class UnsoundRewrite(LuminalError):
    """Two programs of one e-class contradict each other. A bug in a rewrite rule, named in the message."""


class VerificationFailed(LuminalError):
    """The compiled program's outputs differ from the reference by more than the dtype's class allows."""

    exit_code = 1
