"""How fast the graphs are that nnef-grad emits, and how fast it emits them, beside peers
that are measured in the same run.

    python -m bench --help

__main__.py     the options
settings.py     what is measured, and how often
nets.py         the networks
parts/          a module for each part of the benchmark: it prepares files
workers/        what runs them, in processes of their own: one for each row
peers.py        the environment of onnxruntime-training
timing.py       interleaved runs
rows.py         what was measured
comparisons.py  which figures are compared with which, and the goals
report.py       the table in the terminal, and the JSON file
data_parallel.py  a program of its own: steps per second of several processes
memory.py  a program of its own: the tables about memory
recomputation.py  a program of its own: memory with and without computing again
page.py         docs/speed.md, from the JSON file
plot.py, figures.py  its figures

It must import nothing: a worker of another environment has neither nnef_grad nor its
dependencies.
"""
