"""`python -m luminal_onnx`: the command line, where its script is not on the path."""

from luminal_onnx.cli import main

main()
