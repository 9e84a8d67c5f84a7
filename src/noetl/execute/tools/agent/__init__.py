"""The `agent` kind: something that takes a payload and answers it, a playbook or a program, behind one envelope."""
