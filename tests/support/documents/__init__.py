"""The documents that our front end and the Khronos parser are both given."""
