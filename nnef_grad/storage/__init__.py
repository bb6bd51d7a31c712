"""Storage of models: texts, folders and archives, with the data of their variables.

files.py        reading, and atomic writing
signals.py      Ctrl-C and termination while something is written
paths.py        safe paths inside a model, from labels and names
parts.py        the files of a model, opened on demand
archives.py     tar files, and the files in them
containers.py   a common interface to folders, archives and texts
output.py       writing them
tensor_file.py  the format of a .dat file
data.py         the data of variables, read on demand
"""
