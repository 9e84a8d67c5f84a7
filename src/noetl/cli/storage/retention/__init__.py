"""`noetl retention`: what is kept and why, what expires, and what is pinned."""
