"""The `container` kind: an image and what it is to run go in, its exit code and its output come out.

`job` runs it in Kubernetes, `engine` in docker or podman. No value of the environment stands where others can read it.
"""
