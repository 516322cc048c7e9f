"""Stands where Horovod has its extension, by which an installation with PyTorch is known."""
