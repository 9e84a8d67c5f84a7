"""Whole engines for tests, in memory or on real servers, with replay parity checked after every test."""
