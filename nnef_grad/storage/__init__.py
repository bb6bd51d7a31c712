"""Storage of models: texts, folders and archives, with the data of their variables.

files.py        reading, the parts of models, and atomic writing
paths.py        safe paths inside a model, from labels and names
archives.py     tar files, and the files in them
containers.py   a common interface to folders, archives and texts
output.py       writing them
tensor_file.py  the format of a .dat file
data.py         the data of variables, read on demand

What cannot be read or written, or does not fit, raises an `NnefGradError`, usually a
`UsageError`.
"""
