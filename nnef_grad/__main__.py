from nnef_grad.cli import main

main()
