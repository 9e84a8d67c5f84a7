"""Files of datasets, held against what their manifests say: entries go in, a refusal comes out, or nothing.

    stamps.py         what a store says of a file without reading it: size, time or ETag
    footers.py        whether a file ends as was committed, so that its columns are what they were
    proofs.py         which files were hashed on this node, so that each is hashed once
    checking.py       whether files are what was committed, by their stamps or by their SHA-256
    reading.py        what goes wrong while a file is decoded, in words of ours
    spark_errors.py   the same where Spark decodes it

Nothing here repairs or removes anything, and nothing decides which files count: manifests do.
"""
