"""Any seeds, by hand: `PYTHONPATH=tests python -m fuzz FIRST COUNT`. Failures are printed shrunk; the exit code is 1 then."""

from __future__ import annotations

import argparse
import sys
import time

from .batches import failures_of, graph_case, model_case
from .failures import Ways


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Run generated graphs or models of many seeds.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many seeds")
    parser.add_argument("--models", action="store_true", help="ONNX models, held to onnxruntime, instead of graphs")
    parser.add_argument("--checked", action="store_true", help="run kernels under the checker")
    parser.add_argument("--drawn", type=int, default=0, help="programs drawn at random that are compiled too")
    parser.add_argument("--together", type=int, default=30, help="cases whose kernels are compiled together")
    options = parser.parse_args()
    ways = Ways(randoms=1 if options.models else 3, drawn=options.drawn, check_kernels=options.checked)
    start = model_case if options.models else graph_case
    failed, began = 0, time.monotonic()
    for first in range(options.first, options.first + options.count, options.together):
        seeds = range(first, min(first + options.together, options.first + options.count))
        for text in failures_of(start, seeds, ways):
            failed += 1
            print(text, end="\n\n", flush=True)
        print(f"seeds to {seeds[-1]}: {failed} failures, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
