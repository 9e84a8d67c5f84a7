"""The `gcs` kind: objects of Google Cloud Storage are written, read, listed and deleted."""
