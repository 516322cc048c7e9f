"""In the place of Horovod where it is not installed: the calls of its torch side that the row makes."""
