"""Secrets at rest and in use: encrypted rows, keychain entries, providers."""
