"""The `agent` kind: a payload goes in, an answer in one envelope comes out, whether a playbook or a program gave it."""
