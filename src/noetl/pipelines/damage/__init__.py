"""Files of datasets that are not what was committed: found, told with the task that builds them again, and built again.

    finder       finds the files that somebody can still read, hashes them, and says what is damaged
    repair       has damaged partitions built again, and puts the same bytes back where older versions name them
    differences  the same findings, as differences that a replay reports

Bytes are put back only where their SHA-256 is the one that was committed. Nothing is ever removed here.
"""
