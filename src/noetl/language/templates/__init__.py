"""Templates: source text and names go in, a value comes out, or an error that says where and what is missing.

`template` compiles and renders. Everyday expressions become plain Python closures; Jinja evaluates the rest in the same
sandbox. Templates have no clock, no randomness and no files, cannot change their input, and pay for every step
(`bounds`). No error repeats a value, and source text is never returned in place of one.
"""
