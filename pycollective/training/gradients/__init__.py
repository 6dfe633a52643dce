"""Gradients of data parallel training, reduced in buckets while the rest of them is still being computed.

`layout` cuts parameters into buckets, `compression` puts a bucket into fewer bytes, `reducer` runs a step. Nothing in
here knows a framework: what drives the reducer by torch's backward is pycollective/torch/gradient_hooks.py.
"""
