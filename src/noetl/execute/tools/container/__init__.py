"""The `container` kind: an image and what it is to run go in, its exit code and its output come out."""
