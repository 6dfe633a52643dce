"""Gradients of data parallel training, reduced in buckets while backward still computes.

`layout` cuts parameters into buckets, `compression` stores a bucket in fewer bytes, `reducer` runs
a step. This package is independent of frameworks; pycollective/torch/gradient_hooks.py drives the
reducer by torch's backward.
"""
