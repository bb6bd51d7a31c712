"""`python -m nnef_grad`: the command line."""

from nnef_grad.cli import main

main()
