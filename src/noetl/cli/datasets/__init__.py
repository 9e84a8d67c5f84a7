"""Commands that show and change datasets: rows, files, generations, lineage, queries, invalidations and backfills."""
