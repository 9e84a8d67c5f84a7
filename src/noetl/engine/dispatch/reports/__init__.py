"""Checks what workers report against what they were granted, before anything of it is recorded.

A report goes in; it comes out unchanged, or a refusal says which field is wrong and why. Nothing is written.
"""
