"""Show a compiled digits network at work: held-out images, what it reads in them, and how many it gets right.

    python -m luminal_onnx.models.digits_demo digits.luminal [--device cuda]
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console

from luminal_onnx import InferenceSession

from .digits import load_digits_samples

SHADES = " .:-=+*#%@"
SHOWN = 8


def draw(image: np.ndarray) -> list[str]:
    """Return an 8x8 grey image as lines of text, two characters a pixel."""
    levels = np.clip(image / image.max() * (len(SHADES) - 1), 0, len(SHADES) - 1).astype(int)
    return ["".join(SHADES[level] * 2 for level in row) for row in levels]


def main() -> None:
    """Show the images, what was read in them, and the share that is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    images, labels = load_digits_samples()
    console = Console(highlight=False, soft_wrap=True)
    with InferenceSession(arguments.artifact, device=arguments.device) as session:
        outputs = dict(zip([port.name for port in session.get_outputs()], session.run(None, {"image": images})))
    read = outputs["probabilities"].argmax(axis=1)
    shown = max(1, min(SHOWN, (console.width + 1) // (2 * images.shape[-1] + 1)))
    pictures = [draw(image[0]) for image in images[:shown]]
    for line in zip(*pictures):
        console.print(" ".join(line).rstrip(), markup=False)
    console.print(" ".join(f"   reads {digit}".ljust(16) for digit in read[:shown]).rstrip())
    right = int((read == labels).sum())
    console.print(f"\n{right} of {len(labels)} held-out images read right, by the compiled kernels on {arguments.device}")


if __name__ == "__main__":
    main()
