"""Figures of NoETL beside their bare floors, measured in one run. Never part of the tests."""
