"""For tests of NoETL and of what is built on it: contract suites, builders of valid events, and real servers that live
for one test run. Never imported by the product itself."""
