"""Files of datasets that are not what was committed: found, told with the task that builds them again, and built again.

    reachable.py   which versions of partitions somebody can still read
    finding.py     hashes their files, and says what is damaged
    repairing.py   has damaged partitions built again, and puts the same bytes back where older versions name them

Bytes are put back only where their SHA-256 is the one that was committed. Nothing is ever removed here.
"""
