"""Files of datasets, held against what their manifests say: entries go in, a refusal comes out, or nothing.

    stamps       what a store says of a file without reading it: size, time or ETag
    proofs       which files were hashed on this node, so that each is hashed once
    checks       whether files are what was committed, by their stamps or by their SHA-256
    read_errors  what goes wrong while a file is decoded, by us or by Spark, in words of ours

Nothing here repairs or removes anything, and nothing decides which files count: manifests do.
"""
