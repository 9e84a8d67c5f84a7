"""Rules of DAGs that tables cannot express: a tree in normal form goes in, problems come out.

One module for each subject: columns, files, the graph of jobs, single jobs, and sources. Rules never change the tree.
Parts of a wrong shape are skipped, because the grammar has reported them.
"""
