"""Services beside the engine: each does one job for organizations, over the ledger, datasets and Spark.

alerts       finds what is wrong and sends messages
schedule     starts work at planned moments
query        answers SQL over datasets
retention    removes what is no longer kept
credentials  keeps secrets and gives them to tools
openlineage  sends lineage to other systems
curated      shows operators what rules leave of all tenants
views        keeps streaming views up to date
"""
