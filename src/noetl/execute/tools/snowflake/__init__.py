"""The `snowflake` kind and the ends of transfers in Snowflake: SQL goes in, rows come out, by the official connector."""
