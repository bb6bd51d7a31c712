"""The processes that measure: each reads a request from the standard input, and its last
line is the answer, both in JSON.
"""
