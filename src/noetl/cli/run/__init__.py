"""`noetl run`: runs a playbook in this process and shows its progress and its result.

Other commands that run something to its end use the same display and the same exit codes.
"""
