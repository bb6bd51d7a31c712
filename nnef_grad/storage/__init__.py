"""How models are stored: texts, folders and archives, with the data of their variables.

files.py        reading and writing, whole or not at all
paths.py        labels and names to places inside of a model, and nowhere else
archives.py     what is in a tar file
parts.py        the files of a model, wherever they are
containers.py   a folder, an archive or a text, as one thing
output.py       writing them
tensor_file.py  the format of a .dat file
data.py         the data of variables, read when they are asked for
"""
