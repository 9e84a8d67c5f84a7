"""The PFT workload: a mock API of patients, the playbooks that drain it, and the exact numbers they must end with."""
