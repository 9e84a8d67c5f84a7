"""A worker without a database: everything it needs comes from a server's API and the payload store."""
