"""Size flags: what ``build`` takes as keywords and the command line as options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def flag(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field that is also a command-line option: the default gives its type, ``help`` its text."""
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """The flags that every builder has."""

    batch: int = flag(1, "batch size (a default for sample inputs when --dynamic)")
    dtype: str = flag("float32", "type of weights and float tensors", ("float32", "float16"))
    dynamic: bool = flag(False, "named dims instead of fixed ones")
    opset: int = flag(17, "opset of the default domain, 17 or later")
    seed: int = flag(0, "seed of the weights")

    def __post_init__(self) -> None:
        require(self.dtype in ("float32", "float16"), f"dtype is {self.dtype!r}: expected float32 or float16")
        require(self.opset >= 17, f"opset is {self.opset}: LayerNormalization and these spellings need 17 or later")
        for name, value in vars(self).items():
            if isinstance(value, int) and name != "seed" and not isinstance(value, bool):
                require(value >= (0 if name == "past" else 1), f"{name} is {value}: expected a positive number")


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError(message)`` unless the condition holds."""
    if not condition:
        raise ValueError(message)
